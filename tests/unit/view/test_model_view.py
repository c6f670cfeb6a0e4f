"""What a model is shown: golden cases."""

import base64
import dataclasses
import struct

import pandas as pd
import pytest

from lagent.view import ModelView, estimate_tokens
from sandbox import ErrorInfo, ExecutionResult, FileInfo, Outcome, Output

PNG = b'\x89PNG\r\n\x1a\n' + b'\0\0\0\rIHDR' + struct.pack('>II', 640, 480) + b'\0' * 100
TRACE = (
    f'{"-" * 75}\nValueError                                Traceback (most recent call last)\n'
    'Cell In[2], line 1\n----> 1 f()\n\nFile /usr/lib/python3.11/json/x.py:1, in f()\n      1 x\n\n'
    'ValueError: no'
)


def ok(*outputs, **more):
    return ExecutionResult(Outcome.OK, outputs, **more)


def failed(*outputs, **more):
    error = ErrorInfo('ValueError', 'no', TRACE)
    return ExecutionResult(Outcome.ERROR, (*outputs, Output('error', TRACE)), error, **more)


ALL = failed(
    Output('stdout', 'one\n'),
    Output('stderr', 'careful\n'),
    Output('display', '<Figure>', {'text/plain': '<Figure>', 'image/png': PNG}),
    Output('display', '', {'text/html': '<b>bold</b>'}),
    Output('display', 'x', {'text/plain': 'x'}, left_out={'image/svg+xml': 12_345}),
    notices=('the kernel was restarted',),
    artifacts=(FileInfo('plot.png', 23_456, 0.0), FileInfo('odd\nname', 3, 0.0)),
)


def test_everything_in_order_with_the_error_at_the_end():
    assert (
        ModelView().content([ALL])
        == """\
[notice] the kernel was restarted
one
[stderr]
careful
[image: png 640x480, 124 bytes]
[text/html: 11 characters]
[image/svg+xml left out: 12,345 bytes]
[files created or changed: plot.png (23 kB), odd\ufffdname (3 bytes)]
Cell In[2], line 1
----> 1 f()
[... 1 frame inside json left out ...]
ValueError: no"""
    )


def test_nothing_is_said_to_be_nothing():
    assert ModelView().content([ok()]) == '[no output]'
    assert ModelView().content([ok(notices=('n',))]) == '[notice] n\n[no output]'


def test_long_output_and_long_error_share_the_room():
    long = 'word ' * 10_000
    result = failed(
        Output('stdout', long),
        notices=('kept',),
        full_output=(FileInfo('.outputs/1.txt', 50_000, 0.0),),
    )
    result = dataclasses.replace(
        result, outputs=(result.outputs[0], Output('error', TRACE.replace('no', 'no ' * 9_000)))
    )
    text = ModelView(tokens=300).content([result])
    assert estimate_tokens(text) <= 310
    assert text.startswith('[notice] kept\nword word')
    assert text.count('characters left out; all of it is in .outputs/1.txt ...]') == 2
    assert text.endswith('no no no ')
    assert '[full output: .outputs/1.txt (50 kB)]' in text
    assert text == ModelView(tokens=300).content([result])


def test_what_the_sandbox_has_cut_is_counted_with_what_is_cut_here():
    mark = '\n[... 1,000 characters left out ...]\n'
    output = Output('stdout', 'a' * 400 + mark + 'b' * 400, cut=(400, 1_000))
    assert ModelView().content([ok(output)]) == 'a' * 400 + mark + 'b' * 400
    text = ModelView(tokens=100).content([ok(output)])
    kept = text.count('a'), text.count('b')
    # The line feed that the output lacks at its end counts as well; three words hold an a.
    assert f'[... {1_800 + 1 - (kept[0] - 2) - kept[1] - 1:,} characters left out' in text


def test_the_tokenizer_of_the_model_decides():
    text = ModelView(tokens=100, tokenizer=str.split).content([ok(Output('stdout', 'a b\n' * 500))])
    assert 60 <= len(text.split()) <= 100
    numbers = ModelView(tokens=100, tokenizer=lambda t: len(t.split()))
    assert numbers.content([ok(Output('stdout', 'a b\n' * 500))]) == text


def test_the_policys_characters_are_the_default():
    result = ok(Output('stdout', 'x' * 10_000))
    assert len(ModelView().content([result])) <= 8_000
    assert len(ModelView().content([dataclasses.replace(result, text_limit=1_000)])) <= 1_000


def test_cells_share_the_room_and_those_not_run_are_told():
    results = [ok(Output('stdout', 'x' * 9_000)), failed()]
    text = ModelView(tokens=400).content(results, 4)
    assert text.startswith('[cell 1 of 4: ok]\nxxx')
    assert '\n\n[cell 2 of 4: error]\nCell In[2], line 1' in text
    assert text.endswith('\n\nCells 3 to 4 were not run, because cell 2 failed.')
    assert estimate_tokens(text) < 400
    refused = ModelView().content([ok()], 2, 'The same code again.')
    assert refused.endswith('[cell 2 of 2: not run]\nThe same code again.')


def test_images_go_to_models_that_see():
    plots = [
        Output('display', '', {'image/png': PNG + bytes([n]), 'image/jpeg': b'\xff'})
        for n in range(3)
    ]
    plot, *_ = plots
    view = ModelView(images='content', max_images=2)
    content = view.content([ok(*plots, plots[2]), ok(plots[2])], 2)
    urls = [f'data:image/png;base64,{base64.b64encode(PNG + bytes([n])).decode()}' for n in (1, 2)]
    assert content[0]['text'].count('[image: png 640x480') == 4
    assert content[1:] == [{'type': 'image_url', 'image_url': {'url': url}} for url in urls]
    assert view.content([ok()]) == '[no output]'
    small = ModelView(images='content', max_image_bytes=10)
    assert isinstance(small.content([ok(plot)]), str)


def test_a_wide_table_is_shortened_and_a_narrow_one_is_not():
    def shown(table):
        with pd.option_context('display.max_columns', 20, 'display.width', 80):
            data = {'text/plain': repr(table), 'text/html': table._repr_html_()}
        return ModelView().content([ok(Output('result', data['text/plain'], data))])

    narrow = pd.DataFrame({'a': [1, 2]})
    assert shown(narrow) == repr(narrow)
    wide = shown(pd.DataFrame({f'c{n}': range(50) for n in range(40)}))
    assert len(wide.splitlines()) <= 23
    assert wide.endswith('[50 rows x 40 columns]')


@pytest.mark.parametrize(
    ('kind', 'data', 'shown'),
    [
        ('Markdown', {'text/markdown': '**6** rows\x1b'}, '**6** rows'),
        ('Latex', {'text/latex': '$x^2$'}, '$x^2$'),
        ('HTML', {'text/html': pd.DataFrame({'n': [1, 2]}).to_html()}, '   n\n0  1\n1  2'),
        ('HTML', {'text/html': '<b>6</b>'}, '<IPython.core.display.HTML object>'),
    ],
)
def test_what_an_object_holds_is_shown_where_its_own_text_is_empty(kind, data, shown):
    plain = f'<IPython.core.display.{kind} object>'
    output = Output('display', plain, {'text/plain': plain, **data})
    assert shown in ModelView().text([ok(output)])
    said = dataclasses.replace(output, text='its own')
    assert ModelView().text([ok(said)]) == 'its own'


def test_halves_of_surrogate_pairs_do_not_reach_a_tokenizer():
    def tokenizer(text):
        return text.encode()

    view = ModelView(tokenizer=tokenizer)
    text = view.text([ok(Output('stdout', 'a\ud800'), notices=('b\udfff',))])
    assert text == '[notice] b\ufffd\na\ufffd'


def test_control_characters_do_not_reach_the_model():
    assert ModelView().content([ok(Output('stdout', 'a\x1b[2Jb\u202e\n'))]) == 'a\ufffd[2Jb\ufffd'


@pytest.mark.parametrize('wrong', [{'tokens': 0}, {'max_images': 0}, {'images': 'all'}])
def test_wrong_settings_are_refused(wrong):
    with pytest.raises(ValueError):
        ModelView(**wrong)
