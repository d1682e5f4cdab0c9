"""What other frameworks call our words, for "did you mean": ours on the left, theirs on the right.

Theirs are squeezed: lower case, letters and digits only. A word may stand for several of ours; the first that
is allowed in its place is suggested.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping

Words = Mapping[str, tuple[str, ...]]  # theirs -> ours


def _words(ours: Mapping[str, str]) -> Words:
    theirs: dict[str, tuple[str, ...]] = {}
    for our, words in ours.items():
        for word in words.split():
            theirs[word] = (*theirs.get(word, ()), our)
    return theirs


def suggest(word: str, allowed: Iterable[str], words: Words) -> str | None:
    """The allowed word that is meant: in another spelling, in another framework's words, or nearly typed."""
    names, squeezed = list(allowed), squeeze(word)
    same = [name for name in names if squeeze(name) == squeezed]
    same += [name for name in words.get(squeezed, ()) if name in names]
    return next(iter(same + difflib.get_close_matches(word.lower()[:64], names, 1, 0.6)), None)


def squeeze(word: str) -> str:
    """Conv_2D -> conv2d."""
    return "".join(c for c in word.lower() if c.isalnum())


ACTIVATIONS = {
    "none": "linear identity",
    "silu": "swish",
    "hard_swish": "hswish",
    "leaky_relu": "lrelu",
    "gelu_tanh": "gelunew geluapprox geluapproximate",
    "sigmoid": "logistic",
}
ACTIVATION = _words(ACTIVATIONS)
LAYER_TYPE = _words(
    {
        "linear": "dense fc fullyconnected gemm matmul",
        "conv2d": "conv convolution convolution2d",
        "depthwise_conv2d": "dwconv depthwise depthwiseconv",
        "maxpool2d": "maxpool maxpooling maxpooling2d pool pooling",
        "avgpool2d": "avgpool averagepool averagepooling averagepooling2d meanpool",
        "global_avg_pool": "gap globalavgpool2d globalaveragepool globalaveragepooling2d adaptiveavgpool2d",
        "flatten": "reshape view",
        "batchnorm": "bn norm batchnorm1d batchnorm2d batchnormalization",
        "layernorm": "ln layernormalization",
        "embed_projection": "embed embedding embedproj",
        "residual": "resblock residualblock basicblock skip",
        "inverted_residual": "mbconv invertedbottleneck bottleneck",
        **{name: words for name, words in ACTIVATIONS.items() if name != "none"},
    }
)
LAYER_KEY = _words(
    {
        "out_features": "units neurons size features outputs out outdim outputdim outputsize dim",
        "in_features": "inputs in inputdim inputsize",
        "hidden_features": "hidden hiddendim hiddensize",
        "out_channels": "filters channels outputs out",
        "in_channels": "inputs in",
        "embed_dim": "dim outdim outputdim",
        "kernel_size": "kernel ksize k poolsize filtersize size window",
        "padding": "pad pads",
        "stride": "strides step",
        "groups": "group",
        "activation": "act nonlinearity function",
        "bias": "usebias",
        "weight_init": "init initializer kernelinitializer",
        "alpha": "negativeslope slope",
        "eps": "epsilon",
        "rate": "p prob droprate dropout",
        "algorithm": "method algo",
        "expand": "expansion expandratio t",
        "batchnorm": "bn norm usebatchnorm",
        "layers": "body modules",
        "shortcut": "skip downsample",
    }
)
LOSS = _words(
    {
        "cross_entropy": "ce softmax nll nllloss crossentropyloss softmaxcrossentropy "
        "categoricalcrossentropy sparsecategoricalcrossentropy",
        "logit_margin": "hinge margin multimargin multimarginloss",
        "mse": "l2 meansquarederror mseloss",
        "bce": "binarycrossentropy bcewithlogits bcewithlogitsloss",
    }
)
OPTIMIZER = _words({"momentum": "sgdm sgdmomentum", "nesterov": "nag", "adam": "rmsprop adagrad nadam"})
SCHEDULE = _words(
    {
        "constant": "none fixed",
        "step": "steplr multistep multisteplr",
        "cosine": "cos cosineannealing cosineannealinglr",
        "one_cycle": "onecyclelr",
    }
)
OPTION = _words(
    {
        "learning_rate": "lr",
        "weight_decay": "wd l2 decay",
        "label_smoothing": "smoothing",
        "class_weights": "weight weights classweight",
        "m": "margin",
        "eps": "epsilon",
        "beta1": "betas b1",
        "beta2": "b2",
        "factor": "gamma",
        "every": "stepsize",
        "milestones": "steps epochs",
        "floor": "etamin minlr",
        "pct": "pctstart",
        "monitor": "metric",
        "color": "grayscale colour colororder",
        "pad": "border",
        "flip": "mirror hflip vflip fliplr horizontalflip verticalflip randomhorizontalflip randomverticalflip",
        "translate": "pad padding padcrop shift crop randomcrop translation",
        "rotate": "rotation degrees randomrotation angle turn",
        "scale": "zoom resizedcrop randomresizedcrop randomscale",
        "brightness": "light colorjitter",
        "saturation": "chroma",
        "tint": "hue whitebalance channelshift",
        "mixup": "mix",
        "pad_mode": "mode paddingmode fill fillmode",
        "cutout": "erase erasing randomerasing holes",
    }
)
COLOR = _words({"gray": "grey grayscale greyscale"})
FLIP = _words(
    {"none": "no never", "horizontal": "leftright lr h yes", "vertical": "updown ud v", "alternate": "alternating"}
)
PAD_MODE = _words({"zero": "zeros constant mean black", "reflect": "mirror symmetric reflection"})
BLUEPRINT_KEY = _words(
    {
        "input_shape": "input inputsize inputdim shape",
        "layers": "network model modules",
        "loss": "criterion objective lossfunction labelsmoothing classweights",
        "optimizer": "optim optimiser solver",
        "learning_rate": "lr",
        "batch_size": "batch bs",
        "epochs": "numepochs nepochs",
        "accumulation": "accumulationsteps gradientaccumulation gradientaccumulationsteps",
        "weight_decay": "wd l2",
        "clip_norm": "clip gradclip maxnorm maxgradnorm",
        "warmup": "warmupsteps warmupepochs",
        "validation_split": "valsplit",
        "seed": "randomseed randomstate",
        "labels": "classes classnames",
        "schedule": "scheduler lrschedule lrscheduler",
        "early_stopping": "patience",
        "augmentation": "augment augmentations aug dataaugmentation",
        "ema": "movingaverage weightaverage averagedecay emadecay swa",
        "freeze": "frozen freezelayers",
        "rates": "lrmult learningrates lrmultipliers parametergroups paramgroups layerlr",
        "sampling": "sampler weightedsampling oversampling balanced",
        "fraction": "subset datafraction limittrainbatches",
        "time_limit": "time maxtime timebudget budget",
        "layer_statistics": "layerstats statistics",
        "preprocessing": "transform transforms normalize",
        "description": "comment",
    }
)
