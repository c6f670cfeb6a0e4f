"""Messages as JSON."""

import json

import pytest
from pydantic import BaseModel
from pydantic_core import PydanticSerializationError

from lagent.schema import ActionReturn, AgentMessage


@pytest.mark.parametrize('indent', [None, 2])
def test_halves_of_surrogate_pairs_are_replaced_in_json(indent):
    message = AgentMessage(content='a\udcff b \U0001f600', formatted={'a': ['\udcff']})
    text = message.model_dump_json(indent=indent, exclude_none=True)
    text.encode()
    assert AgentMessage.model_validate_json(text) == AgentMessage(
        content='a\ufffd b \U0001f600', formatted={'a': ['\ufffd']}
    )
    assert ('\n' in text) == (indent is not None)
    assert 'type' not in json.loads(text)


def test_all_other_json_is_pydantic_s_own():
    message = AgentMessage(content=ActionReturn(type='x', errmsg='\u00fc'), sender='y')
    assert message.model_dump_json() == BaseModel.model_dump_json(message)
    with pytest.raises(PydanticSerializationError, match='Unable to serialize'):
        AgentMessage(content=object()).model_dump_json()
