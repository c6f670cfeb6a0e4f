from .notebook import NotebookCell as NotebookCell
from .notebook import read_notebook as read_notebook
from .notebook import to_notebook as to_notebook
from .notebook import write_notebook as write_notebook
from .profiles import Column as Column
from .profiles import FileProfile as FileProfile
from .profiles import TableProfile as TableProfile
