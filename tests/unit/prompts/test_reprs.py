"""A parser shows what it was told, as far as that is not the default."""

from lagent.prompts.parsers import MixedToolParser, PluginParser, StrParser, ToolCallParser


def test_parsers_say_how_they_were_made():
    assert repr(StrParser()) == 'StrParser()'
    assert repr(StrParser('{x}', x=1)) == "StrParser(template='{x}', format_field={'x': 1})"
    assert repr(ToolCallParser(tool_type='t')) == "ToolCallParser(tool_type='t')"
    mixed = MixedToolParser(parsers=[PluginParser()])
    assert repr(mixed) == "MixedToolParser(parsers={'plugin': PluginParser()})"


def test_a_long_template_is_shortened():
    assert len(repr(StrParser('long ' * 1_000))) < 100
