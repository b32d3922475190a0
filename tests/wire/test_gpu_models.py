"""Products as the vendor's library names them, and the short names that people ask for."""

import pytest

from wire.gpu_models import matches, short_model

PRODUCTS = {
    "NVIDIA H100 80GB HBM3": "H100",
    "NVIDIA H100 PCIe": "H100",
    "NVIDIA H100 NVL": "H100",
    "NVIDIA H100 64GB HBM3": "H100",
    "NVIDIA H100 80GB HBM2e": "H100",
    "NVIDIA H800": "H800",
    "NVIDIA H800 PCIe": "H800",
    "NVIDIA H200": "H200",
    "NVIDIA H200 NVL": "H200",
    "NVIDIA H20": "H20",
    "NVIDIA H20-3e": "H20",
    "NVIDIA H20Z": "H20Z",
    "NVIDIA GH200 480GB": "GH200",
    "NVIDIA GH200 120GB": "GH200",
    "NVIDIA GH200 144G HBM3e": "GH200",
    "NVIDIA B200": "B200",
    "NVIDIA B300 SXM6 AC": "B300",
    "NVIDIA B100": "B100",
    "NVIDIA GB200": "GB200",
    "NVIDIA GB10": "GB10",
    "NVIDIA GB300": "GB300",
    "NVIDIA A100-SXM4-40GB": "A100",
    "NVIDIA A100-SXM4-80GB": "A100",
    "NVIDIA A100-PCIE-40GB": "A100",
    "NVIDIA A100 80GB PCIe": "A100",
    "A100-SXM4-40GB": "A100",
    "NVIDIA A100X": "A100X",
    "NVIDIA A100-SXM-64GB": "A100",
    "NVIDIA A100-PG509-200": "A100",
    "NVIDIA A800-SXM4-80GB": "A800",
    "NVIDIA A800 40GB Active": "A800",
    "NVIDIA A30X": "A30X",
    "NVIDIA A2": "A2",
    "NVIDIA A10": "A10",
    "NVIDIA A10G": "A10G",
    "NVIDIA A16": "A16",
    "NVIDIA A30": "A30",
    "NVIDIA A40": "A40",
    "NVIDIA L4": "L4",
    "NVIDIA L40": "L40",
    "NVIDIA L40S": "L40S",
    "NVIDIA L2": "L2",
    "NVIDIA L20": "L20",
    "Tesla V100-SXM2-16GB": "V100",
    "Tesla V100-SXM3-32GB-H": "V100",
    "Tesla V100S-PCIE-32GB": "V100S",
    "Tesla V100-PCIE-32GB": "V100",
    "Tesla V100-DGXS-32GB": "V100",
    "Tesla V100-SXM2-32GB-LS": "V100",
    "Tesla V100-FHHL-16GB": "V100",
    "Tesla P100-PCIE-16GB": "P100",
    "Tesla P100-SXM2-16GB": "P100",
    "Tesla P6": "P6",
    "Tesla P4": "P4",
    "Tesla P40": "P40",
    "Tesla T4": "T4",
    "Tesla T10": "T10",
    "NVIDIA T4G": "T4G",
    "NVIDIA T1000 8GB": "T1000",
    "NVIDIA T400 4GB": "T400",
    "NVIDIA RTX 6000 Ada Generation": "RTX 6000 Ada",
    "NVIDIA RTX 4000 SFF Ada Generation": "RTX 4000 SFF Ada",
    "NVIDIA RTX 5880 Ada Generation": "RTX 5880 Ada",
    "NVIDIA RTX 6000 Ada Generation Laptop GPU": "RTX 6000 Ada Laptop",
    "NVIDIA RTX A2000 12GB": "RTX A2000",
    "NVIDIA RTX A6000": "RTX A6000",
    "NVIDIA RTX A4500 Laptop GPU": "RTX A4500 Laptop",
    "NVIDIA RTX PRO 6000 Blackwell Server Edition": "RTX PRO 6000",
    "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition": "RTX PRO 6000",
    "NVIDIA RTX PRO 6000 Blackwell Workstation Edition": "RTX PRO 6000",
    "NVIDIA RTX PRO 5000 72GB Blackwell": "RTX PRO 5000",
    "NVIDIA RTX PRO 4500 Blackwell": "RTX PRO 4500",
    "NVIDIA RTX PRO 4000 Blackwell SFF Edition": "RTX PRO 4000 SFF",
    "NVIDIA RTX PRO 2000 Blackwell Generation Laptop GPU": "RTX PRO 2000 Laptop",
    "NVIDIA RTX PRO 6000 Blackwell Server Edition MIG 1g.24gb": "RTX PRO 6000 MIG 1g.24gb",
    "Quadro RTX 8000": "Quadro RTX 8000",
    "NVIDIA Quadro RTX 6000": "Quadro RTX 6000",
    "Quadro GV100": "Quadro GV100",
    "Quadro P6000": "Quadro P6000",
    "NVIDIA TITAN V": "TITAN V",
    "NVIDIA TITAN RTX": "TITAN RTX",
    "TITAN Xp": "TITAN Xp",
    "GeForce GTX 1080 Ti": "GTX 1080 Ti",
    "NVIDIA GeForce RTX 2080 Ti": "RTX 2080 Ti",
    "NVIDIA GeForce RTX 4070 Ti SUPER": "RTX 4070 Ti SUPER",
    "NVIDIA GeForce RTX 5090 D": "RTX 5090 D",
    "NVIDIA GeForce RTX 4090": "RTX 4090",
    "NVIDIA GeForce RTX 3060 12GB": "RTX 3060",
    "NVIDIA H100 80GB HBM3 MIG 1g.10gb": "H100 MIG 1g.10gb",
    "NVIDIA H100 80GB HBM3 MIG 1g.10gb+me": "H100 MIG 1g.10gb+me",
    "NVIDIA H100 80GB HBM3 MIG 1g.20gb+gfx": "H100 MIG 1g.20gb+gfx",
    "NVIDIA H200 MIG 1g.18gb": "H200 MIG 1g.18gb",
    "NVIDIA GB200 MIG 1g.23gb": "GB200 MIG 1g.23gb",
    "NVIDIA A100-SXM4-40GB MIG 1g.5gb-me": "A100 MIG 1g.5gb-me",
    "NVIDIA A100-SXM4-40GB MIG 1c.3g.20gb": "A100 MIG 1c.3g.20gb",
    "GRID A100-10C": "A100-10C",
    "NVIDIA L40S-48Q": "L40S-48Q",
    "NVIDIA H100XM-80C": "H100XM-80C",
    "NVIDIA PG506-230": "PG506-230",
    "NVIDIA CMP 170HX": "CMP 170HX",
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
