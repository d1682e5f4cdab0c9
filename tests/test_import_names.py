"""Operators of an import have short names, each another one."""

from test_import_models import imported

from litenet.exporter.importers.names import short


def test_a_name_loses_its_scopes_and_its_operator():
    names = {
        "functional_1/activation/Relu": "activation", "functional_1/activation_1/Relu": "activation_1",
        "functional_1/dense/BiasAdd": "dense", "Identity": "Identity", "StatefulPartitionedCall:0":
        "StatefulPartitionedCall:0", "functional_1/soft/Softmax.2": "soft.2", "functional_1/x/Mean.scale": "x.scale",
        "/features/features.0/features.0.0/Conv": "features.0.0", "245": "245", "Conv_0_quant": "Conv_0_quant",
    }  # fmt: skip
    assert short(names) == names


def test_a_name_keeps_what_tells_it_from_others():
    names = {
        "net/dense/MatMul": "dense/MatMul", "net/dense/BiasAdd": "dense/BiasAdd",
        "net/left/conv/Conv2D": "left/conv", "net/right/conv/Conv2D": "right/conv",
        "net/relu": "net/relu", "relu": "relu", "a/b": "a/b", "/a/b": "/a/b", "": "", "//": "//",
    }  # fmt: skip
    assert short(names) == names


def test_names_of_a_real_model_are_in_the_file(tmp_path):
    for kind, last, output in (("f32", "sm", "sm/Softmax"), ("int8", "Identity", "Identity")):
        with imported(f"tinymaix_mnist_valid_{kind}.tflite", tmp_path / "net.bin") as engine:
            assert [layer.name for layer in engine.layers] == ["relu0", "relu1", "activation", "GAP", "fc1", last]
            assert list(engine.outputs) == [output]  # as the source has it
