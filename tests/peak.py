"""How much memory a program of a test has taken, as it tells itself.

Not ru_maxrss: after an exec that still holds the peak of the process that started it.
"""

KILOBYTES = 'int(open("/proc/self/status").read().partition("VmHWM:")[2].split()[0])'
