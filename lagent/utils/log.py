"""A logger that is set up once, however often it is asked for."""

import logging
import time
from logging.handlers import RotatingFileHandler
from pathlib import Path

DEFAULT_FORMAT = '%(asctime)s %(levelname)8s %(filename)8s:%(lineno)4d - %(message)s'


def get_logger(
    name: str = 'lagent',
    level: str = 'debug',
    fmt: str = DEFAULT_FORMAT,
    add_file_handler: bool = False,
    log_dir: str = 'log',
    log_file: str | None = None,
    max_bytes: int = 50 * 1024 * 1024,
    backup_count: int = 3,
) -> logging.Logger:
    """Set up a logger that writes to standard error and, if wanted, to a file.

    Args:
        name: the logger's name. Asking again for a name adds no second handler of a kind.
        level: a level's name, in either case.
        fmt: format of a line.
        add_file_handler: whether to write to a file, too.
        log_dir: folder of the file; it is created.
        log_file: name of the file; the time of the call, when not given.
        max_bytes: size at which the file is rotated.
        backup_count: how many rotated files are kept.

    Returns:
        The logger. Its records do not reach the root logger.
    """
    logger = logging.getLogger(name)
    logger.propagate = False
    logger.setLevel(level.upper())
    formatter = logging.Formatter(fmt)
    present = {type(handler) for handler in logger.handlers}
    if logging.StreamHandler not in present:
        stream = logging.StreamHandler()
        stream.setFormatter(formatter)
        logger.addHandler(stream)
    if add_file_handler and RotatingFileHandler not in present:
        folder = Path(log_dir)
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / (log_file or time.strftime('%Y-%m-%d-%H-%M-%S.log'))
        file = RotatingFileHandler(
            path, maxBytes=max_bytes, backupCount=backup_count, encoding='utf-8'
        )
        file.setFormatter(formatter)
        logger.addHandler(file)
    return logger
