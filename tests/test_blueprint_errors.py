"""What is said about each mistake in a blueprint: where, what was found, what is expected; and what to do."""

import random

import pytest
import yaml
from test_blueprint import CNN, EVERYTHING, one_layer

from litenet.trainer.blueprint import parse
from litenet.trainer.blueprint_text import MAX_DEPTH
from litenet.trainer.errors import UserError


def complaint(text):
    """The message about a text, which must be of two lines."""
    with pytest.raises(UserError) as error:
        parse(text, "net.json")
    first, second = str(error.value).split("\n")
    assert first.startswith("net.json")
    assert first[-1] in ".?"
    assert second.startswith("  ")
    assert second[-1] in ".?"
    return first, second


# (text, part of the sentence, part of the remedy)

TEXT = [
    ("", "the blueprint is empty", "at least input_shape"),
    ("# only a comment\n", "the blueprint is empty", "at least"),
    ("// only a comment", 'the blueprint is "// only a comment", but a mapping', "mapping is"),
    ("[1]", "the blueprint is [1], but a mapping is expected", "mapping is"),
    ("hello", 'the blueprint is "hello", but a mapping is expected', "mapping is"),
    ("{", "line 1: the text ends, but the { of line 1 is not closed", "Put a }"),
    ('{"a": [\n1', "line 2: the text ends, but the [ of line 1 is not closed", "Put a ]"),
    ('{"a": 1,\n "b" ', "line 2: the text ends, but the { of line 1", "Put a }"),
    ('{"a":', "line 1: the text ends, but the { of line 1", "Put a }"),
    ('{"a": [1}', "} is found, but the [ of line 1 is still open", "Put a ] before it"),
    ('{"a": 1]', "] is found, but the { of line 1 is still open", "Put a } before it"),
    ('{"a": 1\n "b": 2}', 'line 2: a comma is missing before "b"', "comma between"),
    ('{"a" 1}', 'after the key "a" stands 1', "colon"),
    ('{"a": , }', ", stands where a value is expected", "before it"),
    ('{"a": [1,,2]}', ", stands where a value is expected", "before it"),
    ("{,}", ", stands where a key is expected", "before it"),
    ('{"a": 1} {', "{ follows after the end", "brackets"),
    ('{"a": “x”}', "“x” is in curly quotes", "straight"),
    ('{"a": "x\n"}', "line 1: a quoted text is not closed on its line", "closing quote"),
    ("{'a", "line 1: a quoted text is not closed on its line", "closing quote"),
    ('{"a": "\\x"}', "holds an escape that JSON does not know", "Known are"),
    ('{"a": "\\ud800"}', "holds an escape that JSON does not know", "Known are"),
    ("{ /* never", "a comment that starts with /* never ends", "Write */"),
    ('{"a": 1, // {\n', "line 1: a comment hides the brackets", "Break the line"),
    ('{"a": 1,\n "a": 2}', 'line 2: "a" is written twice, first in line 1', "Keep one"),
    ("a: 1\nb: 2\na: 3", 'line 3: "a" is written twice, first in line 1', "Keep one"),
    ("a: [1", "the YAML cannot be read: expected ',' or ']'", "indentation"),
    ("a:\n\tb: 1", "line 2: the YAML cannot be read: a tab is used for indentation", "spaces"),
    ("// no\na: b: c", "line 2: the YAML cannot be read", "comment starts with #"),
    ("a: &x 1\nb: *x", "line 2: *x is an alias", "Write the part out"),
    ("a: !!python/name:os.system", "the tag tag:yaml.org,2002:python/name:os.system is not read", "plain value"),
    ("a: 1\n---\nb: 2", "line 2: a second document starts", "one blueprint"),
    ("? [a]\n: b", "line 1: a key is not a word", "one word"),
    ("a: b\nc: \x07", "line 2: the character U+0007 is found", "Remove"),
    ('a: "\\UFFFFFFFF"', "an escape such as \\U stands for no character", "the character itself"),
    ('a: "\\ud800"', "half of a surrogate pair", "the character itself"),
    ("[" * 100_000, f"nested more than {MAX_DEPTH} deep", "fewer levels"),
    ('{"a":' * 100_000, f"nested more than {MAX_DEPTH} deep", "fewer levels"),
    ("- " * 5000, f"nested more than {MAX_DEPTH} deep", "fewer levels"),
    ("a: " + "[" * 100_000, f"nested more than {MAX_DEPTH} deep", "fewer levels"),
]
LAYERS = [
    ("[]", "line 3: the layer is [], but a mapping is expected", "key"),
    ("{}", "layers[0], line 3: the layer has no type", 'Write {"type": "linear", ...}'),
    ('{"dense": {"units": 3}}', "the layer has no type", 'Write {"type": "linear", ...}'),
    ('{"type": 3.5}', "the type \"3.5\" is unknown", "Types: linear, conv2d"),
    ('{"type": []}', "type is [], but a text is expected", "kind of layer"),
    ('{"type": "add"}', "add joins two paths", "residual"),
    ('{"type": "none"}', 'the type "none" is unknown', "Types"),
    ('{"type": "Conv2D"}', "did you mean conv2d?", "Types"),
    ('{"type": "dense"}', "did you mean linear?", "Types"),
    ('{"type": "fc"}', "did you mean linear?", "Types"),
    ('{"type": "conv"}', "did you mean conv2d?", "Types"),
    ('{"type": "maxpool"}', "did you mean maxpool2d?", "Types"),
    ('{"type": "gap"}', "did you mean global_avg_pool?", "Types"),
    ('{"type": "bn"}', "did you mean batchnorm?", "Types"),
    ('{"type": "swish"}', "did you mean silu?", "Types"),
    ('{"type": "liner"}', "did you mean linear?", "Types"),
    ('{"type": "zzz"}', 'layers[0], line 3: the type "zzz" is unknown.', "Types"),
    ('{"type": "linear"}', "layers[0] (linear), line 3: out_features is missing",
     "length of y's last axis; a whole number"),
    ('{"type": "linear", "units": 3}', 'the key "units" is unknown; did you mean out_features?',
     "linear takes type, name"),
    ('{"type": "linear", "size": 3}', "did you mean out_features?", "linear takes"),
    ('{"type": "maxpool2d", "size": 3}', "did you mean kernel_size?", "maxpool2d takes"),
    ('{"type": "conv2d", "filters": 3}', "did you mean out_channels?", "conv2d takes"),
    ('{"type": "conv2d", "kernal_size": 3}', "did you mean kernel_size?", "conv2d takes"),
    ('{"type": "flatten", "kernel_size": 3}', 'the key "kernel_size" is unknown.', "flatten takes type, name."),
    ('{"type": "relu", "activation": "gelu"}', 'the key "activation" is unknown.', "relu takes type, name."),
    ('{"type": "flatten", "layers": []}', 'the key "layers" is unknown.', "flatten takes"),
    ('{"type": "linear", "out_features": 0}', "out_features is 0, but a whole number from 1 to 16777216 is", "length"),
    ('{"type": "linear", "out_features": 2.5}', "out_features is 2.5, but a whole number", "length"),
    ('{"type": "linear", "out_features": true}', "out_features is true, but a whole number", "length"),
    ('{"type": "linear", "out_features": NaN}', 'out_features is "NaN", but a whole number', "length"),
    ('{"type": "linear", "out_features": 1e999}', "out_features is Infinity, but a whole number", "length"),
    ('{"type": "linear", "out_features": %s}' % ("9" * 5000), "but a whole number", "length"),
    ('{"type": "linear", "out_features": [3]}', "out_features is [3], but a whole number", "length"),
    ('{"type": "linear", "out_features": 3, "bias": 2}', "bias is 2, but true or false is expected", "bias"),
    ('{"type": "linear", "out_features": 3, "weight_init": "he"}', 'weight_init "he" is unknown',
     "weight_init can be auto"),
    ('{"type": "linear", "out_features": 3, "activation": "relU"}', "did you mean relu?", "activation can be none"),
    ('{"type": "linear", "out_features": 3, "activation": "linear"}', "did you mean none?", "activation can be"),
    ('{"type": "linear", "out_features": 3, "activation": 3}', "activation is 3, but one of none, relu", "function"),
    ('{"type": "linear", "out_features": 3, "activation": "softmax"}', "softmax is a layer of its own",
     "unless the loss"),
    ('{"type": "linear", "out_features": 3, "alpha": 0.1}', "alpha is given, but the activation is none", "leaky_relu"),
    ('{"type": "leaky_relu", "alpha": 2}', "alpha is 2, but a number from 0 to 1 is expected", "slope"),
    ('{"type": "activation"}', "activation is missing", "one of none, relu"),
    ('{"type": "maxpool2d", "kernel_size": [1, 2, 3]}', "or a list of 2 of them is expected", "taps"),
    ('{"type": "maxpool2d", "kernel_size": 2, "padding": "SAME"}', 'or "same" or "valid" is expected', "border"),
    ('{"type": "maxpool2d", "kernel_size": 2, "padding": [1, 2, 3]}', "padding is [1, 2, 3]", "border"),
    ('{"type": "dropout", "rate": 1}', "rate is 1, but a number from 0 to 0.99 is expected", "share"),
    ('{"type": "residual"}', "layers[0] (residual), line 3: layers is missing", "shortcut goes around"),
    ('{"type": "residual", "layers": []}', "line 3: layers[0].layers is [], but a list of layers", "flatten"),
    ('{"type": "residual", "layers": ["relu"], "shortcut": 3}', "layers[0].shortcut is 3, but a list", "flatten"),
    ('{"type": "residual", "layers": ["relu"], "shortcut": "projecton"}', "did you mean projection?",
     "shortcut can be"),
    ('{"type": "residual", "layers": ["relu",\n"dense"]}', "layers[0].layers[1], line 4: the type", "Types"),
    ('{"type": "inverted_residual"}', "out_channels is missing", "channels of y"),
    ('{"type": "relu", "name": "a/b"}', 'name is "a/b", but at most 64 letters', "Put _"),
    ('{"type": "relu", "name": ""}', 'name is "", but a text is expected', "leave it out"),
    ('{"type": "relu", "name": "%s"}' % ("n" * 65), "but at most 64 letters", "Put _"),
    ('{"type": "relu", "name": "a"}, {"type": "relu", "name": "a"}',
     'layers[1] (relu), line 3: the name "a" is already that of layers[0]',
     "its own"),
]  # fmt: skip
TOP = [
    ('"lr": 0.1', 'line 4: the key "lr" is unknown; did you mean learning_rate?', "A blueprint takes name"),
    ('"optimiser": "adam"', "did you mean optimizer?", "A blueprint takes"),
    ('"epoch": 3', "did you mean epochs?", "A blueprint takes"),
    ('"name": "a b"', 'name is "a b", but at most 64', "Put _"),
    ('"description": [1]', "description is [1], but a text is expected", "leave it out"),
    ('"epochs": 0', "line 4: epochs is 0, but a whole number from 1 to 1000000", "epochs: how often"),
    ('"batch_size": "big"', 'batch_size is "big", but a whole number', "batch_size:"),
    ('"learning_rate": -1', "learning_rate is -1, but a number from 1e-12 to 1000", "learning_rate:"),
    ('"learning_rate": {}', "learning_rate is {}, but a number", "learning_rate:"),
    ('"learning_rate": 1, "optimizer": {"type": "adam", "learning_rate": 2}',
     "learning_rate is also given in the optimizer, line 4", "Keep one"),
    ('"seed": 18446744073709551616', "seed is 18446744073709551616, but a whole number from 0 to 18446744073709551615",
     "seed"),
    ('"loss": "ce"', 'line 4: loss "ce" is unknown; did you mean cross_entropy?', "loss can be cross_entropy"),
    ('"loss": 3', "loss is 3, but a name is expected", "loss can be"),
    ('"loss": {}', "loss has no type", 'Add "type"'),
    ('"loss": {"type": "mse", "m": 1}', '(mse): the key "m" is unknown', "mse takes nothing"),
    ('"loss": {"type": "logit_margin", "margin": 1}', "did you mean m?", "logit_margin takes m"),
    ('"loss": {"type": "cross_entropy", "label_smoothing": 1}', "label_smoothing is 1, but a number from 0 to 0.999",
     "share"),
    ('"loss": {"type": "cross_entropy", "class_weights": []}',
     "class_weights is [], but a number from 0 to 1000000 or a list of them",
     "weight"),
    ('"loss": {"type": "cross_entropy", "class_weights": [0, 0]}', "all class_weights are 0", "above 0"),
    ('"optimizer": "nag"', "did you mean nesterov?", "optimizer can be"),
    ('"optimizer": {"type": "sgd", "lr": 1}', "did you mean learning_rate?", "sgd takes learning_rate, momentum"),
    ('"optimizer": {"type": "sgd", "nesterov": true}', "nesterov is on, but momentum is 0", "0.9"),
    ('"optimizer": {"type": "sgd", "momentum": 0.5}, "momentum": 0.9', "momentum is also given in the optimizer",
     "Keep one"),
    ('"optimizer": "adam", "momentum": 0.9', "momentum is given, but the optimizer is adam", "adam takes beta1"),
    ('"momentum": 2', "momentum is 2, but a number from 0 to 0.9999", "momentum:"),
    ('"schedule": "cos"', "did you mean cosine?", "schedule can be"),
    ('"schedule": {"type": "step", "every": 1, "milestones": [1]}', "every and milestones are both given", "Keep one"),
    ('"early_stopping": 0', "(early_stopping): patience is 0, but a whole number", "epochs without"),
    ('"early_stopping": {"metric": "loss"}', "did you mean monitor?", "early_stopping takes"),
    ('"labels": "cat"', 'labels is "cat", but a list of names is expected', '"cat", "dog"'),
    ('"labels": []', "labels is [], but a list", '"cat", "dog"'),
    ('"labels": ["a", "a"]', 'the label "a" stands twice', "its own label"),
    ('"labels": ["a", []]', "a label is [], but a text", "leave it out"),
    ('"labels": ["a\\tb"]', 'the label "a\\tb" is too long or cannot be printed', "printable"),
    ('"preprocessing": "gray"', '(preprocessing): preprocessing is "gray", but a mapping', "mapping"),
    ('"preprocessing": {"colour": "rgb"}', "did you mean color?", "preprocessing takes resize"),
    ('"preprocessing": {"color": "grey"}', "did you mean gray?", "color can be"),
    ('"preprocessing": {"color": "gray"}', "color is gray, but input_shape is [4]", "[1, height, width]"),
    ('"preprocessing": {"std": 0.3081}', "std is 0.3081, but pixels run from 0 to 255", "0.3081 becomes 78.566"),
    ('"preprocessing": {"std": [70, 0.25, 70]}', "std is [70, 0.25, 70], but pixels", "0.25 becomes 63.75"),
    ('"preprocessing": {"std": 0}', "std is 0, but a number from 1 to 65535", "divided"),
    ('"preprocessing": {"mean": [1, 2, 3, 4]}', "mean is [1, 2, 3, 4], but", "subtracted"),
]  # fmt: skip


def expect(text, sentence, remedy):
    first, second = complaint(text)
    assert sentence in first
    assert remedy in second


@pytest.mark.parametrize(("text", "sentence", "remedy"), TEXT)
def test_a_text_that_cannot_be_read_is_refused(text, sentence, remedy):
    expect(text, sentence, remedy)


@pytest.mark.parametrize(("text", "sentence", "remedy"), LAYERS)
def test_a_layer_with_a_mistake_is_refused(text, sentence, remedy):
    expect(one_layer(text), sentence, remedy)


@pytest.mark.parametrize(("text", "sentence", "remedy"), TOP)
def test_a_key_with_a_mistake_is_refused(text, sentence, remedy):
    expect('{"input_shape": [4],\n"layers": ["relu"],\n\n' + text + "}", sentence, remedy)


@pytest.mark.parametrize(
    ("shape", "sentence"),
    [
        ("[]", "input_shape is [], but"),
        ("[1, 1, 28, 28]", "input_shape is [1, 1, 28, 28], but a whole number"),
        ("[0]", "input_shape is [0], but"),
        ('"28x28"', 'input_shape is "28x28", but'),
        ("[4096, 4096, 4096]", "makes 68719476736 values, but 268435456 is the limit"),
    ],
)
def test_an_input_shape_with_a_mistake_is_refused(shape, sentence):
    assert sentence in complaint('{"layers": ["relu"], "input_shape": ' + shape + "}")[0]


def test_a_blueprint_without_input_shape_or_layers_is_refused():
    assert "input_shape is missing" in complaint('{"layers": ["relu"]}')[0]
    assert "layers is missing" in complaint('{"input_shape": [4]}')[0]
    assert "layers is [], but a list of layers is expected" in complaint('{"input_shape": [4], "layers": []}')[0]
    assert "layers is {}, but a list of layers is expected" in complaint('{"input_shape": [4], "layers": {}}')[0]


def test_colours_and_means_must_fit_the_channels():
    text = '{"input_shape": [3, 8, 8], "layers": ["relu"], "preprocessing": {%s}}'
    assert parse(text % '"color": "bgr", "mean": [1, 2, 3], "invert": false').preprocessing["invert"] == "never"
    assert "color is gray, but input_shape is [3, 8, 8]" in complaint(text % '"color": "gray"')[0]
    assert "mean has 2 numbers, but input_shape [3, 8, 8] has 3 channels" in complaint(text % '"mean": [1, 2]')[0]


def test_the_article_s_listing_on_one_line_is_explained():
    line = CNN.replace("\n", " ")
    assert complaint(line) == (
        "net.json, line 1: a comment hides the brackets that follow it on its line.",
        "  Break the line where the comment ends, or write the comment as /* ... */.",
    )


def test_no_damage_to_a_text_gives_anything_but_a_user_error():
    """Characters of two blueprints, one in JSON and one in YAML, are removed, doubled, swapped and replaced."""
    rng = random.Random(0)
    sources = [EVERYTHING, yaml.safe_dump(parse(EVERYTHING).resolved)]
    for _ in range(400):
        text = list(rng.choice(sources))
        for _ in range(rng.choice((1, 1, 2, 5))):
            i, j = rng.randrange(len(text)), rng.randrange(len(text))
            text[i] = rng.choice(["", text[i] * 2, text[j], *"{}[]:,\"'#/*-\\\n\t 0eé&!|>\0"])
        try:
            parse("".join(text))
        except UserError as error:
            assert len(str(error)) < 1000


@pytest.mark.parametrize("text", ['{"%s": 1}', "%s: 1", "a: !%s b", "a: *%s", '{"a": 1 %s', '{"input_shape": "%s"}'])
def test_a_message_stays_short_whatever_the_text(text):
    with pytest.raises(UserError) as error:
        parse(text % ("x" * 10_000))
    assert len(str(error.value)) < 1000


def test_json_is_read_with_any_white_space_quotes_and_line_ends():
    text = "\ufeff// first\r\n{\t'input_shape'\r\n:\u00a0[4], 'layers': [{\"type\": 'relu', \"name\": 'it\\'s'}]}"
    assert complaint(text) == (
        'net.json: layers[0] (relu), line 3: name is "it\'s", but at most 64 letters, digits and _ - are expected.',
        "  Put _ for other characters.",
    )


def test_yaml_without_pyyaml_is_one_sentence_and_json_needs_none(monkeypatch):
    monkeypatch.setattr("litenet.trainer.blueprint_text.yaml", None)
    with pytest.raises(UserError, match="YAML needs PyYAML, which is not installed"):
        parse("input_shape: [4]\nlayers: [relu]\n")
    assert parse('{"input_shape": [4], "layers": ["relu"]}').layers[0].type == "activation"
