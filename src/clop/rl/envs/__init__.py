"""Games that step together, on chosen levels: Procgen by two back ends, Gymnasium's environments, and anybody's own.

Procgen's back ends give the same games. For the same level and the same actions, rewards and ends of episodes agree.
So do frames in about half of the games; in the others the two versions of Qt draw turned or scaled pictures a little
differently. Which levels are drawn, and in what order, differs. No back end is loaded before it is used.
"""
