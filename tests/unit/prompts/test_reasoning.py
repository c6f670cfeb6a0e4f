import pytest

from lagent.prompts.parsers.reasoning import split_reasoning


@pytest.mark.parametrize(
    ('text', 'said', 'thought'),
    [
        ('plain', 'plain', ''),
        ('', '', ''),
        ('<think>\na\n</think>\n\nb', 'b', '<think>\na\n</think>'),
        ('<THINK>a</Think>b', 'b', '<THINK>a</Think>'),
        ('[THINK]a[/THINK]b', 'b', '[THINK]a[/THINK]'),
        ('a\n</think>\nb', 'b', 'a\n</think>'),
        ('Sure. <think>a</think>b', 'Sure. b', '<think>a</think>'),
        ('<think>a</think>b<think>c</think>d', 'bd', '<think>a</think>\n<think>c</think>'),
        ('<think>a <thinking> b</think>c', 'c', '<think>a <thinking> b</think>'),
        ('<think>```\nopen fence\n</think>\nb', 'b', '<think>```\nopen fence\n</think>'),
        ('```python\ndraft\n</think>\nb', 'b', '```python\ndraft\n</think>'),
        ('the tag `<think>` is a tag', 'the tag `<think>` is a tag', ''),
        ('```\n<think>\n```\nb', '```\n<think>\n```\nb', ''),
        ("```\nx.split('</think>')[1]\n```\n", "```\nx.split('</think>')[1]\n```\n", ''),
    ],
)
def test_reasoning_and_answer(text, said, thought):
    answer = split_reasoning(text)
    assert (answer.said(), answer.thought(), answer.unclosed) == (said, thought, False)


def test_reasoning_without_an_end_lasts_to_the_end():
    answer = split_reasoning('a <think> b\n```python\nc\n```')
    assert (answer.said(), answer.unclosed) == ('a ', True)
    assert answer.thought() == '<think> b\n```python\nc\n```'


def test_other_tags_and_none():
    assert split_reasoning('<t>a</t>b', [('<t>', '</t>')]).said() == 'b'
    assert split_reasoning('<think>a</think>b', []).said() == '<think>a</think>b'


def test_an_answer_can_be_cut():
    answer = split_reasoning('<think>a</think>hello').cut(18)
    assert answer.said() == 'he'
