"""From a float net to whole numbers: ranges from data, and what is measured before a file is written.

    calibration.py   the samples            ranges.py     histograms, and ranges from them
    graphs.py        what must be equal     equalise.py   channels of one size, bias.py   means put right
    lower.py         the whole-number net   search.py     which of all this helps this net
"""
