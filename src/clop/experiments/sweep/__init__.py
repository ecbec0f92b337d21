"""Many runs as one: a sweep is a list of jobs, each an ordinary run folder; the folders are its only state.

``grids``      what to run: games × methods × seeds × settings, and classifiers
``named``      the paper's experiments as such grids, at full size and small
``jobs``       one run of a sweep: its settings, and an id made of them
``plan``       the file that lists a sweep's jobs, and where each of them stands
``supervise``  bring one job to its end, through any number of deaths that leave it further on
``local``, ``on_ray``, ``on_slurm``  where the jobs run
"""
