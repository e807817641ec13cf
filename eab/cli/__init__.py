"""The command line: the same runs without a browser.

commands has the commands, options what several of them take, progress the bar and Ctrl-C, terminal
the tables, files what is written; batch the command for many prompts, with batch_lines and
batch_folder for what it reads and writes; sweep the command for many settings.
"""
