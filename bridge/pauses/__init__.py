"""Why a partition is paused, a reason a file; `pauses` alone pauses and resumes."""
