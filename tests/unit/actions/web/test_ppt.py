"""PPT: the files it writes are read back with the library that others use."""

import asyncio
import inspect
import io
from pathlib import Path

import pytest
from PIL import Image

from lagent.actions import PPT, ActionExecutor, AsyncPPT
from lagent.actions.web.picture import read_picture
from lagent.schema import ActionStatusCode, AgentMessage

from .conftest import LOOPBACK, Answer

pptx = pytest.importorskip('pptx')

OK, HTTP, API, ARGS = (
    ActionStatusCode.SUCCESS,
    ActionStatusCode.HTTP_ERROR,
    ActionStatusCode.API_ERROR,
    ActionStatusCode.ARGS_ERROR,
)


@pytest.fixture(params=[PPT, AsyncPPT])
def cls(request):
    return request.param


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def called(tool, api, **arguments):
    result = tool(arguments, api)
    return asyncio.run(result) if inspect.iscoroutine(result) else result


def status(result):
    assert result.state == OK, result.errmsg
    return result.format_result()


def picture(kind='PNG', size=(40, 20)):
    file = io.BytesIO()
    Image.new('RGB', size, 'red').save(file, kind)
    return file.getvalue()


def texts(slide):
    return [shape.text_frame.text for shape in slide.placeholders if shape.has_text_frame]


def test_a_whole_file(cls, tmp_path):
    tool, file, image = cls(), tmp_path / 'deck.pptx', tmp_path / 'red.png'
    image.write_bytes(picture())
    created = called(tool, 'create_file', theme='Default', abs_location=str(file))
    assert status(created) == '{"status": "created a ppt file."}'
    added = called(tool, 'add_first_page', title='Agents', subtitle='and tools 🛠')
    assert status(added) == '{"status": "added page"}'
    called(tool, 'add_text_page', title='Why', bullet_items='One [SPAN]Two[SPAN] Three')
    status(called(tool, 'add_text_image_page', title='How', bullet_items='See', image=str(image)))
    assert not file.exists(), 'the file is written when it is submitted'
    assert str(file) in status(called(tool, 'submit_file'))

    slides = list(pptx.Presentation(str(file)).slides)
    assert [slide.slide_layout.name for slide in slides] == [
        'Title Slide',
        'Title and Content',
        'Two Content',
    ]
    assert texts(slides[0]) == ['Agents', 'and tools 🛠']
    assert texts(slides[1]) == ['Why', 'One\nTwo\nThree']
    assert [p.level for p in slides[1].placeholders[1].text_frame.paragraphs] == [0, 0, 0]
    assert texts(slides[2]) == ['How', 'See'], 'no empty placeholder is left beside the picture'
    [shown] = [shape for shape in slides[2].shapes if shape.shape_type == 13]
    assert shown.image.blob == image.read_bytes()
    assert shown.width / shown.height == pytest.approx(2, rel=0.01)
    place = slides[2].slide_layout.placeholders[2]
    assert place.left <= shown.left
    assert shown.left + shown.width <= place.left + place.width
    assert place.top <= shown.top
    assert shown.top + shown.height <= place.top + place.height
    assert {path.name for path in tmp_path.iterdir()} == {'deck.pptx', 'red.png'}
    assert file.stat().st_mode & 0o777 == (tmp_path / 'red.png').stat().st_mode & 0o777


def test_work_goes_on_after_a_submission(cls, tmp_path):
    tool, file = cls(), tmp_path / 'deck.pptx'
    called(tool, 'create_file', theme='Default', abs_location=str(file))
    for count in (1, 2):
        called(tool, 'add_text_page', title='T', bullet_items='x')
        called(tool, 'submit_file')
        assert len(pptx.Presentation(str(file)).slides) == count


def test_nothing_without_a_file(cls):
    tool = cls()
    for api, arguments in {
        'add_first_page': {'title': 'x', 'subtitle': 'y'},
        'add_text_page': {'title': 'x', 'bullet_items': 'y'},
        'add_text_image_page': {'title': 'x', 'bullet_items': 'y', 'image': '/no'},
        'submit_file': {},
    }.items():
        result = called(tool, api, **arguments)
        assert (result.state, result.errmsg) == (
            API,
            'There is no file to work on: call create_file first.',
        )


@pytest.mark.parametrize(
    ('theme', 'location', 'words'),
    [
        ('Dark', '{}/a.pptx', "The theme is one of ['Default'], not 'Dark'"),
        ('Default', 'a.pptx', 'must be an absolute path'),
        ('Default', '{}/a.txt', 'must end with .pptx'),
        ('Default', '{}/none/a.pptx', 'There is no folder'),
    ],
)
def test_files_that_cannot_be_made(cls, tmp_path, theme, location, words):
    location = location.format(tmp_path)
    result = called(cls(), 'create_file', theme=theme, abs_location=location)
    assert (result.state, words in result.errmsg) == (API, True)


def test_the_folder_is_not_left(cls, tmp_path):
    inside, outside = tmp_path / 'in', tmp_path / 'out'
    inside.mkdir()
    outside.mkdir()
    (inside / 'link').symlink_to(outside)
    (outside / 'red.png').write_bytes(picture())
    tool = cls(folder=inside)
    for location in (f'{outside}/a.pptx', f'{inside}/../out/a.pptx', f'{inside}/link/a.pptx'):
        result = called(tool, 'create_file', theme='Default', abs_location=location)
        assert (result.state, 'must be in' in result.errmsg) == (API, True)
    status(called(tool, 'create_file', theme='Default', abs_location=f'{inside}/a.pptx'))
    result = called(
        tool, 'add_text_image_page', title='x', bullet_items='y', image=f'{outside}/red.png'
    )
    assert (result.state, 'must be in' in result.errmsg) == (API, True)


def test_a_failed_submission_leaves_the_old_file(cls, tmp_path, monkeypatch):
    tool, file = cls(), tmp_path / 'deck.pptx'
    called(tool, 'create_file', theme='Default', abs_location=str(file))
    called(tool, 'submit_file')
    before = file.read_bytes()
    monkeypatch.setattr(Path, 'replace', lambda *_: (_ for _ in ()).throw(OSError('disk full')))
    result = called(tool, 'submit_file')
    assert (result.state, result.errmsg) == (API, 'disk full')
    assert [path.name for path in tmp_path.iterdir()] == ['deck.pptx']
    assert file.read_bytes() == before


@pytest.mark.parametrize('kind', ['PNG', 'JPEG', 'WEBP'])
def test_pictures_of_the_web(cls, web, tmp_path, kind):
    server = web({'/red': Answer(picture(kind), content_type=f'image/{kind.lower()}')})
    tool, file = cls(allow_networks=LOOPBACK), tmp_path / 'deck.pptx'
    called(tool, 'create_file', theme='Default', abs_location=str(file))
    image = f'{server.url}/red'
    status(called(tool, 'add_text_image_page', title='x', bullet_items='', image=image))
    called(tool, 'submit_file')
    [slide] = pptx.Presentation(str(file)).slides
    [shown] = [shape for shape in slide.shapes if shape.shape_type == 13]
    assert shown.image.content_type == f'image/{"png" if kind == "WEBP" else kind.lower()}'
    assert shown.image.size == (40, 20)


def test_pictures_that_cannot_be_fetched(cls, web, tmp_path):
    server = web({'/red': Answer(picture()), '/text': Answer(b'no picture')})
    guarded, tool = cls(), cls(allow_networks=LOOPBACK)
    for one in (guarded, tool):
        called(one, 'create_file', theme='Default', abs_location=f'{tmp_path}/a.pptx')

    def add(tool, image):
        result = called(tool, 'add_text_image_page', title='x', bullet_items='y', image=image)
        return result.state, result.errmsg

    assert add(guarded, f'{server.url}/red')[0] == ARGS
    assert server.asked == []
    assert add(tool, f'{server.url}/none')[0] == HTTP
    assert 'not a picture' in add(tool, f'{server.url}/text')[1]
    assert 'There is no file' in add(tool, f'{tmp_path}/none.png')[1]
    assert 'There is no file' in add(tool, str(tmp_path))[1]
    assert 'absolute' in add(tool, 'file:///etc/passwd')[1]
    called(tool, 'submit_file')
    assert len(pptx.Presentation(f'{tmp_path}/a.pptx').slides) == 0, 'a failure adds no page'


def test_pictures_that_are_too_large_or_damaged():
    with pytest.raises(ValueError, match='40000000 pixels, not 8000x6000'):
        read_picture(picture(size=(8000, 6000)))
    for data in (b'', b'GIF89a', picture()[:60], b'<svg xmlns="http://www.w3.org/2000/svg"/>'):
        with pytest.raises(ValueError, match='not a picture'):
            read_picture(data)


def test_a_theme_of_ones_own(cls, tmp_path):
    template = pptx.Presentation()
    template.slide_width = template.slide_width * 2
    template.save(str(tmp_path / 'wide.pptx'))
    themes = {
        'Wide': {
            'template': str(tmp_path / 'wide.pptx'),
            'title': 'Title Only',
            'single': 'Blank',
            'two': 'No such layout',
        }
    }
    (tmp_path / 'red.png').write_bytes(picture())
    tool, file = cls(themes), tmp_path / 'deck.pptx'
    called(tool, 'create_file', theme='Wide', abs_location=str(file))
    status(called(tool, 'add_first_page', title='T', subtitle='has no place'))
    status(called(tool, 'add_text_page', title='T', bullet_items='x'))
    result = called(
        tool, 'add_text_image_page', title='x', bullet_items='y', image=f'{tmp_path}/red.png'
    )
    assert result.errmsg == "The template has no layout named 'No such layout'."
    called(tool, 'submit_file')
    made = pptx.Presentation(str(file))
    assert made.slide_width == template.slide_width
    assert [texts(slide) for slide in made.slides] == [['T'], []]


def test_each_session_has_its_own_file(tmp_path):
    tool = PPT()
    executor = ActionExecutor([tool])

    def call(session, api, **arguments):
        message = AgentMessage(content={'name': f'PPT.{api}', 'parameters': arguments})
        return executor(message, session_id=session).content

    for one in ('ada', 'bob'):
        status(call(one, 'create_file', theme='Default', abs_location=f'{tmp_path}/{one}.pptx'))
    for one in ('ada', 'bob'):
        status(call(one, 'add_first_page', title=one, subtitle=''))
        status(call(one, 'submit_file'))
    for one in ('ada', 'bob'):
        [slide] = pptx.Presentation(f'{tmp_path}/{one}.pptx').slides
        assert texts(slide)[0] == one
    assert call('eve', 'submit_file').state == API


def test_pages_are_bounded(cls, tmp_path, monkeypatch):
    monkeypatch.setattr('lagent.actions.ppt._MAX_PAGES', 1)
    tool = cls()
    called(tool, 'create_file', theme='Default', abs_location=f'{tmp_path}/a.pptx')
    called(tool, 'add_text_page', title='T', bullet_items='x')
    result = called(tool, 'add_text_page', title='T', bullet_items='x')
    assert (result.state, 'at most 1 pages' in result.errmsg) == (API, True)
    result = called(tool, 'add_text_page', title='T', bullet_items='[SPAN]' * 101)
    assert 'at most 100 bullet items' in result.errmsg


def test_description(cls):
    described = cls().description
    assert described['description'].startswith('Create ppt slides with text')
    assert {
        api['name']: [one['name'] for one in api['parameters']] for api in described['api_list']
    } == {
        'create_file': ['theme', 'abs_location'],
        'add_first_page': ['title', 'subtitle'],
        'add_text_page': ['title', 'bullet_items'],
        'add_text_image_page': ['title', 'bullet_items', 'image'],
        'submit_file': [],
    }


def test_nothing_outside_of_the_working_folder_is_written_or_read(cls, tmp_path, monkeypatch):
    inside = tmp_path / 'work'
    inside.mkdir()
    (tmp_path / 'secret.png').write_bytes(picture())
    (inside / 'link.png').symlink_to(tmp_path / 'secret.png')
    monkeypatch.chdir(inside)
    tool = cls()
    for place in (tmp_path / 'deck.pptx', inside / '..' / 'deck.pptx'):
        result = called(tool, 'create_file', theme='Default', abs_location=str(place))
        assert result.errmsg == f"The location must be in '{inside}'."
    status(called(tool, 'create_file', theme='Default', abs_location=f'{inside}/deck.pptx'))
    for image in (tmp_path / 'secret.png', inside / 'link.png'):
        result = called(tool, 'add_text_image_page', title='x', bullet_items='y', image=str(image))
        assert result.errmsg == f"The location must be in '{inside}'."
