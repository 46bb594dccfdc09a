"""Bytes of files become values here, within bounds of memory, depth and time; a damaged file gives one line.

Nothing is unpickled. Files may come from elsewhere: sizes are checked before memory is allocated, and only regular
files are opened, because reading a named pipe would wait without end. The modules are imported one by one, because the
command line needs only one of them before it runs a command.
"""
