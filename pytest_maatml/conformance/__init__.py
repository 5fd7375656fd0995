"""The rules that an environment must keep, each a function, and what it takes to check them."""
