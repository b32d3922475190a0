"""Products as the vendor's library names them, and the short names that people ask for."""

import pytest

from wire.gpu_models import matches, short_model

PRODUCTS = {
    "NVIDIA H100 80GB HBM3": "H100",
    "NVIDIA H100 PCIe": "H100",
    "NVIDIA H100 NVL": "H100",
    "NVIDIA H800": "H800",
    "NVIDIA H200": "H200",
    "NVIDIA H200 NVL": "H200",
    "NVIDIA H20": "H20",
    "NVIDIA H20-3e": "H20",
    "NVIDIA GH200 480GB": "GH200",
    "NVIDIA GH200 144G HBM3e": "GH200",
    "NVIDIA B200": "B200",
    "NVIDIA B300 SXM6 AC": "B300",
    "NVIDIA GB200": "GB200",
    "NVIDIA GB300": "GB300",
    "NVIDIA A100-SXM4-40GB": "A100",
    "NVIDIA A100-SXM4-80GB": "A100",
    "NVIDIA A100-PCIE-40GB": "A100",
    "NVIDIA A100 80GB PCIe": "A100",
    "A100-SXM4-40GB": "A100",
    "NVIDIA A100X": "A100X",
    "NVIDIA A800-SXM4-80GB": "A800",
    "NVIDIA A2": "A2",
    "NVIDIA A10": "A10",
    "NVIDIA A10G": "A10G",
    "NVIDIA A16": "A16",
    "NVIDIA A30": "A30",
    "NVIDIA A40": "A40",
    "NVIDIA L4": "L4",
    "NVIDIA L40": "L40",
    "NVIDIA L40S": "L40S",
    "Tesla V100-SXM2-16GB": "V100",
    "Tesla V100-SXM3-32GB-H": "V100",
    "Tesla V100S-PCIE-32GB": "V100S",
    "Tesla P100-PCIE-16GB": "P100",
    "Tesla P4": "P4",
    "Tesla P40": "P40",
    "Tesla T4": "T4",
    "NVIDIA T4G": "T4G",
    "NVIDIA RTX 6000 Ada Generation": "RTX 6000 Ada",
    "NVIDIA RTX 4000 SFF Ada Generation": "RTX 4000 SFF Ada",
    "NVIDIA RTX A6000": "RTX A6000",
    "NVIDIA RTX A4500 Laptop GPU": "RTX A4500 Laptop",
    "NVIDIA RTX PRO 6000 Blackwell Server Edition": "RTX PRO 6000",
    "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition": "RTX PRO 6000",
    "Quadro RTX 8000": "Quadro RTX 8000",
    "NVIDIA Quadro RTX 6000": "Quadro RTX 6000",
    "Quadro GV100": "Quadro GV100",
    "Quadro P6000": "Quadro P6000",
    "NVIDIA TITAN V": "TITAN V",
    "NVIDIA GeForce RTX 4090": "RTX 4090",
    "NVIDIA GeForce RTX 3060 12GB": "RTX 3060",
    "NVIDIA H100 80GB HBM3 MIG 1g.10gb": "H100 MIG 1g.10gb",
    "NVIDIA H100 80GB HBM3 MIG 1g.10gb+me": "H100 MIG 1g.10gb+me",
    "NVIDIA A100-SXM4-40GB MIG 1c.3g.20gb": "A100 MIG 1c.3g.20gb",
    "GRID A100-10C": "A100-10C",
    "NVIDIA L40S-48Q": "L40S-48Q",
    "NVIDIA Graphics Device": "Graphics Device",
    "Some  Accelerator\tX1\n": "Some Accelerator X1",
    "": "unknown",
}


@pytest.mark.parametrize(("product", "short"), PRODUCTS.items())
def test_short_model(product, short):
    assert short_model(product) == short


@pytest.mark.parametrize("short", sorted(set(PRODUCTS.values())))
def test_a_short_name_stays_and_matches_itself_only(short):
    assert short_model(short) == short
    assert [other for other in sorted(set(PRODUCTS.values())) if matches(short, other)] == [short]


@pytest.mark.parametrize("requested", ["H100", "h100", "NVIDIA H100", " H100 "])
def test_h100_means_every_h100_and_nothing_else(requested):
    assert matches(requested, short_model("NVIDIA H100 80GB HBM3"))
    assert not matches(requested, short_model("NVIDIA GH200 480GB"))
    assert not matches(requested, short_model("NVIDIA H100 80GB HBM3 MIG 1g.10gb"))


def test_the_series_may_be_left_out_where_the_number_says_it():
    assert matches("a6000", "RTX A6000")
    assert not matches("6000", "RTX A6000")


def test_a_name_of_any_length_stays_short():
    assert len(short_model("X" * 10_000)) == 64
