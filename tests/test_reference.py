"""docs/blueprint.md is what the reader checks with."""

from pathlib import Path

from litenet.trainer import reference
from litenet.trainer.blueprint_layers import TYPES, layer_fields

PAGE = Path(__file__).resolve().parent.parent / "docs" / "blueprint.md"


def test_the_page_is_fresh(tmp_path):
    assert reference.main([str(PAGE), "--check"]) == 0, "run make gen"
    copy = tmp_path / "page.md"
    copy.write_text("old")
    assert reference.main([str(copy), "--check"]) == 1
    assert reference.main([str(copy)]) == 0
    assert copy.read_text() == PAGE.read_text()


def test_every_layer_and_key_stands_on_the_page():
    text = PAGE.read_text()
    for kind in TYPES:
        assert kind in text
        for field in layer_fields(kind):
            assert f"`{field.name}`" in text
