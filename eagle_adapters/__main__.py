"""`python -m eagle_adapters`: the same as the `eagle-adapters` command."""

from eagle_adapters.cli import main

raise SystemExit(main())
