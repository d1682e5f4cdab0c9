"""What a run or a deployed file has to show: figures, pictures, curves, as a page, as text and as JSON.

Nothing of the trainer imports this but the command line, so it may ask stages on its right: the exporter for the
size of a .bin, the runtime for what a .bin answers.
"""
