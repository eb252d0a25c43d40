"""The state of each assigned partition: ready records, order, safe offset; nothing here acts."""
