"""What crashed programs have left behind: containers and folders whose owner is dead.

Every container and every folder of sockets says which process it belongs to. A sandbox ends by
itself soon after its owner; what is here finds the rest, and never touches what belongs to a
living process or to one that cannot be seen from here. What is to survive its owner is left alone
for as long as it waits for the next one.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from sandbox.backends.detach import DetachRecord, SessionLock, is_waiting
from sandbox.backends.docker_container import remove_container
from sandbox.backends.engine import engine
from sandbox.backends.rendezvous import Rendezvous, deserted
from sandbox.errors import SandboxError
from sandbox.owner import FOLDER_LABEL, OWNER_LABEL, POOL_LABEL, SESSION_LABEL, Owner

if TYPE_CHECKING:
    import docker


@dataclass(frozen=True)
class Container:
    """A sandbox's container, whoever it belongs to.

    Attributes:
        id: Its id.
        name: Its name.
        image: The image it was made of.
        status: The engine's word for its state, such as `'running'`.
        created: When it was made, in Unix seconds.
        labels: All its labels.
        owner: The process that made it, or None if its label cannot be read.
        owner_state: Whether that process still runs.
        session: Name of the session that it serves; None while it waits for one in a pool.
    """

    id: str
    name: str
    image: str
    status: str
    created: float
    labels: dict[str, str]
    owner: Owner | None
    owner_state: Literal['alive', 'dead', 'unknown']
    session: str | None = ''


@dataclass(frozen=True)
class Orphan:
    """Something whose owner is dead.

    Attributes:
        kind: What it is.
        name: Id of the container, or path of the folder.
    """

    kind: Literal['container', 'folder']
    name: str


def containers() -> list[Container]:
    """Return all containers of sandboxes on this machine, the oldest first.

    Raises:
        BackendUnavailable: There is no Docker engine to ask.
        SandboxError: The engine failed.
    """
    with engine() as client:
        return sorted(_containers(client), key=lambda container: container.created)


def orphans(*, docker: bool = True) -> list[Orphan]:
    """Return what `collect_garbage` would remove.

    Args:
        docker: Whether to look for containers as well, which needs a Docker engine.

    Raises:
        BackendUnavailable: There is no Docker engine to ask.
        SandboxError: The engine failed.
    """
    there = containers() if docker else None
    found = [Orphan('container', each.id) for each in there or () if _is_orphan(each)]
    names = None if there is None else {each.id for each in there}
    return found + [
        Orphan('folder', str(place.root)) for place in deserted() if not _is_kept(place, names)
    ]


def collect_garbage(*, docker: bool = True) -> list[Orphan]:
    """Remove the containers and folders whose owner is dead, and return them.

    Args:
        docker: As in `orphans`.

    Raises:
        BackendUnavailable: There is no Docker engine to ask.
        SandboxError: Something could not be removed; what could, was.
    """
    removed, failures = [], []
    for orphan in orphans(docker=docker):
        try:
            if _removed(orphan):
                removed.append(orphan)
        except (OSError, SandboxError) as error:
            failures.append(f'{orphan.kind} {orphan.name}: {error}')
    if failures:
        raise SandboxError(
            f'{len(removed)} removed, {len(failures)} not: {"; ".join(failures)}',
            hint='What is left is found again next time.',
        )
    return removed


def _removed(orphan: Orphan) -> bool:
    if orphan.kind == 'container':
        remove_container(orphan.name)
        return True
    place = Rendezvous(Path(orphan.name))
    if (record := DetachRecord.read(place)) is None:
        place.remove()
        return True
    # Somebody may be taking it over in this moment.
    if (lock := SessionLock.take(record.scope, record.session)) is None:
        return False
    try:
        owner = place.owner()
        if owner is None or not owner.is_dead_here():
            return False
        remove_container(record.instance)
        place.remove()
    finally:
        lock.release()
    return True


def _is_kept(place: Rendezvous, containers: set[str] | None) -> bool:
    """Tell whether a dead owner's folder is that of a sandbox which waits for the next one."""
    record = DetachRecord.read(place)
    if record is None:
        return False
    if containers is None:
        return True  # whether its container is gone is not known
    return record.instance in containers and is_waiting(place, record, place.owner())


def _containers(client: 'docker.DockerClient') -> Iterator[Container]:
    filters = {'label': OWNER_LABEL}
    for summary in client.api.containers(all=True, filters=filters):
        if _is_ghost(client, summary):
            continue
        labels: dict[str, str] = dict(summary.get('Labels') or {})
        owner = _owner(labels)
        yield Container(
            id=summary['Id'],
            name=_name(summary),
            image=summary.get('Image', ''),
            status=summary.get('State', ''),
            created=float(summary.get('Created', 0)),
            labels=labels,
            owner=owner,
            owner_state=owner.state() if owner else 'unknown',
            session=_session(labels),
        )


def _is_ghost(client: 'docker.DockerClient', summary: dict[str, Any]) -> bool:
    """Tell whether the engine lists a container that it has removed.

    It may do so, until it is restarted, with one that has ended while it was not running.
    """
    from docker.errors import NotFound

    if summary.get('State') != 'dead':
        return False
    try:
        client.api.inspect_container(summary['Id'])
    except NotFound:
        return True
    return False


def _owner(labels: dict[str, str]) -> Owner | None:
    """Return whose a container is: labels stay as they are when it is taken over."""
    place = Rendezvous(Path(labels.get(FOLDER_LABEL, '')))
    owner = place.owner() if FOLDER_LABEL in labels and DetachRecord.read(place) else None
    return owner or Owner.parse(labels.get(OWNER_LABEL, ''))


def _session(labels: dict[str, str]) -> str | None:
    if POOL_LABEL in labels:
        return Rendezvous(Path(labels.get(FOLDER_LABEL, ''))).session()
    return labels.get(SESSION_LABEL, '')


def _name(summary: dict[str, Any]) -> str:
    names = summary.get('Names') or ['']
    return str(names[0]).removeprefix('/')


def _is_orphan(container: Container) -> bool:
    if container.owner_state != 'dead' or FOLDER_LABEL not in container.labels:
        return False
    # A detached one is found by its folder, and goes with it.
    return DetachRecord.read(Rendezvous(Path(container.labels[FOLDER_LABEL]))) is None
