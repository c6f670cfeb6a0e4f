from enum import Enum, IntEnum
from typing import Any, Literal

import pytest
from pydantic import BaseModel, Field

from lagent.prompts.parsers import CustomFormatParser


class Level(IntEnum):
    LOW = 1
    HIGH = 2


class Colour(Enum):
    RED = 'red'


class Address(BaseModel):
    name: str = Field(description='of the street')
    zip: int | None = None


class Person(BaseModel):
    name: str
    address: Address
    tags: list[str] = []
    homes: list[Address] = []
    level: Level = Level.LOW
    colour: Colour | None = None
    mode: Literal['a', 'b'] = 'a'
    more: dict[str, Any] = {}
    active: bool = False


FULL = """\
<!-- <name>not this</name> -->
<name type="str">Ann &amp; Bob < Co</name>
<address>
    <name>High Street</name>
    <zip>12</zip>
</address>
<tags><item>x</item><item>y z</item></tags>
<homes><item><name>A</name></item><item><name>B</name><zip/></item></homes>
<level>2</level>
<colour>red</colour>
<mode>b</mode>
<more>{'k': [1,]}</more>
<active>true</active>
"""


def parser(**formats):
    return CustomFormatParser('', **(formats or {'default_format': Person}))


def test_everything():
    assert parser().parse_response(FULL) == Person(
        name='Ann & Bob < Co',
        address=Address(name='High Street', zip=12),
        tags=['x', 'y z'],
        homes=[Address(name='A'), Address(name='B')],
        level=Level.HIGH,
        colour=Colour.RED,
        mode='b',
        more={'k': [1]},
        active=True,
    )


def test_writing_undoes_parsing():
    person = parser().parse_response(FULL)
    assert parser().parse_response(parser().format_response(person)) == person


def test_the_instruction():
    assert (
        CustomFormatParser('{p}', p=Person).format_instruction()
        == """\
<name type="str"></name>
<address type="Address">
    <!-- of the street -->
    <name type="str"></name>
    <zip type="int | None"></zip>
</address>
<tags type="list[str]">
    <item type="str"></item>
</tags>
<homes type="list[Address]">
    <item type="Address">
        <!-- of the street -->
        <name type="str"></name>
        <zip type="int | None"></zip>
    </item>
</homes>
<level type="1 | 2">1</level>
<colour type="red | None"></colour>
<mode type="a | b">a</mode>
<more type="dict[str, any]">{}</more>
<active type="bool">False</active>
"""
    )


def test_missing_and_empty_fields_have_their_defaults():
    text = '<name>A</name><address><name>S</name><zip></zip></address><mode> </mode>'
    assert parser().parse_response(text) == Person(name='A', address=Address(name='S'))


@pytest.mark.parametrize('tags', ['<tags>["x", "y"]</tags>', '<tags>x</tags><tags>y</tags>'])
def test_other_ways_to_write_a_list(tags):
    text = f'<name>A</name><address><name>S</name></address>{tags}'
    assert parser().parse_response(text).tags == ['x', 'y']


def test_the_unknown_format():
    class Unknown(BaseModel):
        reason: str

    both = parser(default_format=Person, unknown_format=Unknown)
    assert both.parse_response('<reason>no idea</reason>') == Unknown(reason='no idea')
    assert isinstance(both.parse_response(FULL + '<reason>x</reason>'), Person)


@pytest.mark.parametrize(
    'text',
    ['', 'words', '<name>A</name>', '<name>A', '<name>A</name><address><name>cut</name>'],
)
def test_what_does_not_fit(text):
    with pytest.raises(ValueError):
        parser().parse_response(text)


def test_defaults_alone_do_not_make_an_answer():
    class Optional(BaseModel):
        note: str = 'x'

    with pytest.raises(ValueError, match='none of its tags'):
        parser(default_format=Optional).parse_response('just talk')


def test_reasoning_is_not_searched():
    class Note(BaseModel):
        note: str

    text = '<think><note>draft</note></think><note>real</note>'
    assert parser(default_format=Note).parse_response(text) == Note(note='real')
