"""What the commands import before a rank is started."""

from tests.interpreter import python


def test_preparing_reading_and_fitting_need_no_torch():
    code = (
        "import sys\n"
        "import fastplan.cli.measure\n"
        "import fastplan.measure.run, fastplan.measure.results, fastplan.measure.text\n"
        "import fastplan.measure.calibrate, fastplan.measure.text\n"
        "import fastplan.measure.rerate, fastplan.measure.text, fastplan.measure.worker\n"
        "assert not {'torch', 'torchrec', 'numba'} & sys.modules.keys()\n"
    )
    python(code)
