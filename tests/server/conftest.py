"""Its folder is where tests of all folders below find `puppets`."""
