"""Tracebacks of IPython, cut to the user's frames."""

from lagent.view.tracebacks import users_frames

RULER = '-' * 75

CHAINED = f"""\
{RULER}
KeyError                                  Traceback (most recent call last)
File /opt/venv/lib/python3.11/site-packages/pandas/base.py:3816, in Index.get_loc(self, key)
   3815 try:
-> 3816     return self._engine.get_loc(casted_key)
   3817 except KeyError as err:

File pandas/_libs/index.pyx:172, in pandas._libs.index.IndexEngine.get_loc()
--> 172 'Could not get source, probably due dynamically evaluated source code.'

KeyError: 'nope'

The above exception was the direct cause of the following exception:

KeyError                                  Traceback (most recent call last)
Cell In[4], line 2
      1 df = load()
----> 2 df["nope"]

File /opt/venv/lib/python3.11/site-packages/pandas/frame.py:4330, in DataFrame.__getitem__(key)
   4329                 return self._getitem_multilevel(key)
-> 4330             indexer = self.columns.get_loc(key)

KeyError: 'nope'"""


def test_library_frames_are_counted_and_the_failing_line_stays():
    assert (
        users_frames(CHAINED)
        == """\
[... 2 frames inside pandas left out ...]
KeyError: 'nope'

The above exception was the direct cause of the following exception:

Cell In[4], line 2
      1 df = load()
----> 2 df["nope"]
[... 1 frame inside pandas left out ...]
KeyError: 'nope'"""
    )


def test_modules_in_the_workspace_are_the_users_code():
    trace = f"""\
{RULER}
ValueError                                Traceback (most recent call last)
Cell In[11], line 2
      1 import m
----> 2 m.g()

File /workspace/m.py:2, in g()
      1 def g():
----> 2     return int('x')

File /usr/lib/python3.11/json/decoder.py:5, in f()
      5 raise

ValueError: two
lines: and

a third one"""
    assert (
        users_frames(trace)
        == """\
Cell In[11], line 2
      1 import m
----> 2 m.g()
File /workspace/m.py:2, in g()
      1 def g():
----> 2     return int('x')
[... 1 frame inside json left out ...]
ValueError: two
lines: and

a third one"""
    )


def test_the_middle_of_a_recursion_is_left_out():
    frames = '\n'.join(
        f'Cell In[4], line 2, in r(n)\n----> 2     return r(n+1)  # {n}\n' for n in range(30)
    )
    trace = f"""\
{RULER}
RecursionError                            Traceback (most recent call last)
Cell In[4], line 3
----> 3 r(0)

{frames}
RecursionError: maximum recursion depth exceeded"""
    shown = users_frames(trace)
    assert shown.splitlines()[:2] == ['Cell In[4], line 3', '----> 3 r(0)']
    assert '[... 22 frames of your code left out ...]' in shown
    assert [f'# {n}\n' in shown for n in (0, 1, 2, 23, 24, 29)] == [
        True,
        True,
        False,
        False,
        True,
        True,
    ]
    assert shown.endswith('\nRecursionError: maximum recursion depth exceeded')


def test_a_text_of_another_form_stays_as_it_is():
    syntax = '  Cell In[5], line 1\n    x = = 1\n        ^\nSyntaxError: invalid syntax'
    for text in (syntax, '', 'ValueError: no', 'Traceback (most recent call last):\n  File "a.py"'):
        assert users_frames(text) == text


def test_what_runs_the_kernel_is_left_out_too():
    trace = f"""\
{RULER}
KeyboardInterrupt                         Traceback (most recent call last)
Cell In[1], line 1
----> 1 while True: pass

File /opt/sandbox/output.py:88, in Publisher.on_interrupt(self, number, frame)
---> 88     signal.default_int_handler(number, frame)

KeyboardInterrupt: """
    assert users_frames(trace).splitlines() == [
        'Cell In[1], line 1',
        '----> 1 while True: pass',
        '[... 1 frame inside the sandbox left out ...]',
        'KeyboardInterrupt: ',
    ]
