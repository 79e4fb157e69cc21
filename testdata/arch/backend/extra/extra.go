package extra // want: backend/extra has no line in the import rules
