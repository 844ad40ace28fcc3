"""Works out what happened to a request, and why. Pure: `now` is an argument."""
