# SPDX-License-Identifier: GPL-2.0-only
"""What sealing is built on, value by value: the test vectors of tss.md §13, 13.1–13.6."""

import pytest
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.cmac import CMAC

from uetproto.engine.tss.cipher import context, derive, kdf
from uetproto.wire.crc import crc32c

H = bytes.fromhex

KI = H("34448a064292601b11a0978f56a2d34cf3fc35ede1a6bc04f8db3e5243a2b0ca")  # §13.3
TSC64 = 0x1DC074E500000023
IPV4 = H("c0a82a01")
IPV6 = H("20010cb0000000000fc0000000000abc")
SSI = H("00000064")


# 13.1 AES-256-CMAC ----------------------------------------------------------------------------------------------------

CMAC_KEY = H("603deb1015ca71be2b73aef0857d77811f352c073b6108d72d9810a30914dff4")
CMAC_MESSAGE = H(
    "6bc1bee22e409f96e93d7e117393172aae2d8a571e03ac9c9eb76fac45af8e51"
    "30c81c46a35ce411e5fbc1191a0a52eff69f2445df4f9b17ad2b417be66c3710"
)


@pytest.mark.parametrize(
    ("size", "tag"),
    [
        (0, "028962f61b7bf89efc6b551f4667d983"),
        (16, "28a7023f452e8f82bd4bf28d8c37c35c"),
        (40, "aaf3d8f1de5640c232f5b169b9c911e6"),
        (64, "e1992190549f6ed5696a2c056c315410"),
    ],
)
def test_cmac(size: int, tag: str) -> None:
    cmac = CMAC(AES(CMAC_KEY))
    cmac.update(CMAC_MESSAGE[:size])
    assert cmac.finalize().hex() == tag


# 13.2 KDF in counter mode ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "fixed_input", "out"),
    [
        (
            "3c3fb56af835d12186d46a76c2b18907fbde9836f5fbf4b5da23ff767ee370c6",
            (
                "a4a89e00526f3ac20aaed6b6a300e2fc388bdab9ac20354f9a4c59544b21ff7b"
                "fdfdce1b2439c53ae21757d53327c65133575e04aff0a1b42020e551"
            ),
            "fba54e92c3cd9fff5999ed03592f2f0c54277102d7a5c5b4760042e660e95a992858e2edb45807b2",
        ),
        (
            "f41ea2d0eb78b6f03f614e1796577ca2f6116f4028b826fb8986c320ee24e0f6",
            (
                "f5c27a86c673218e7c6dd68ac8b3bb71108563aae788852349c3b83a722b5655"
                "00f12d140b32d142441927fd3e1eaf0d8663ee610284698645cc6af2"
            ),
            "221890c2c62c690ef92d27d637173cdc6502b50eb858fcfdf0663e9e177b3fa44f437e965f150844",
        ),
    ],
)
def test_kdf(key: str, fixed_input: str, out: str) -> None:
    assert kdf(H(key), H(fixed_input), 40).hex() == out


# 13.3 UEC key derivation ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("label", "rekey_mask", "identity", "bound_to", "key", "mask"),
    [
        (
            b"U1", 0x0000FFFF00000000, IPV4, "1dc0000074e5c0a82a01",
            "151b4ddb30112971ddeff3213000ee74d8f18aac2135601f1e5215e505fed449", "a7c6992c26b0bd5dd5c20e0c",
        ),
        (
            b"U1", 0x0000FFFF00000000, IPV6, "000000001dc0000074e520010cb0000000000fc0000000000abc",
            "55d1ee8647bd53fad0e5325795af18e7559b7d42a895edf70f9c170341e8f767", "9c96a5752fb5669ccd5ded3f",
        ),
        (
            b"U2", 0, IPV4, "1dc000000000c0a82a01",
            "245e67ab286218530edd53c26ea9ec33c96b35192d0a0eb54d08be281c5d304b", "02d5ee33684201990e1629e0",
        ),
        (
            b"U2", 0, IPV6, "000000001dc00000000020010cb0000000000fc0000000000abc",
            "b59002ad3e6a9ae5864878730070f8916e43e5011acaa4be3504256185f24d97", "209a3d29581028fb0da2749e",
        ),
        (
            b"U1", 0x0000FFFF00000000, SSI, "1dc0000074e500000064",
            "4aa772b9caca237553ba42996285ea4c10d1137b033ea8d301953f0310cdd87f", "247b2c5a5dae3c4a5f6f4266",
        ),
        (
            b"U2", 0, SSI, "1dc00000000000000064",
            "565df883684714ed75827b6a07984a005b013dc6b67730633c30eef3f96b2c02", "2c643817696d1465471dc85f",
        ),
    ],
    ids=["cluster IPv4", "cluster IPv6", "client-server IPv4", "client-server IPv6", "cluster SSI",
         "client-server SSI"],
)  # fmt: skip
def test_derived_keys(label: bytes, rekey_mask: int, identity: bytes, bound_to: str, key: str, mask: str) -> None:
    made = context(TSC64 >> 48, (TSC64 & rekey_mask) >> 32, identity)
    assert made.hex() == bound_to
    assert tuple(part.hex() for part in derive(KI, label, made)) == (key, mask)


def test_the_cmac_message_of_the_first_block() -> None:
    cmac = CMAC(AES(KI))
    cmac.update(H("015531001dc0000074e5c0a82a010160"))
    assert derive(KI, b"U1", context(0x1DC0, 0x74E5, IPV4))[0][:16] == cmac.finalize()


# 13.4 AES-256-GCM -----------------------------------------------------------------------------------------------------

K = H("feffe9928665731c6d6a8f9467308308feffe9928665731c6d6a8f9467308308")
N = H("cafebabefacedbaddecaf888")
P = H(
    "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a72"
    "1c3c0c95956809532fcf0e2449a6b525b16aedf5aa0de657ba637b391aafd255"
)
C = H(
    "522dc1f099567d07f47f37a32a84427d643a8cdcbfe5c0c97598a2bd2555d1aa"
    "8cb08e48590dbb3da7b08b1056828838c5f61e6393ba7a0abcc9f662898015ad"
)
AAD = H("feedfacedeadbeeffeedfacedeadbeefabaddad2")


@pytest.mark.parametrize(
    ("key", "iv", "aad", "plain", "sealed", "tag"),
    [
        (bytes(32), bytes(12), b"", b"", b"", "530f8afbc74536b9a963b4f1c4cb738b"),
        (bytes(32), bytes(12), b"", bytes(16), H("cea7403d4d606b6e074ec5d3baf39d18"),
         "d0d1c8a799996bf0265b98b5d48ab919"),
        (K, N, b"", P, C, "b094dac5d93471bdec1a502270e3cc6c"),
        (K, N, AAD, P[:60], C[:60], "76fc6ece0f4e1768cddf8853bb2d551b"),
    ],
)  # fmt: skip
def test_gcm(key: bytes, iv: bytes, aad: bytes, plain: bytes, sealed: bytes, tag: str) -> None:
    assert AESGCM(key).encrypt(iv, plain, aad) == sealed + H(tag)
    assert AESGCM(key).decrypt(iv, sealed + H(tag), aad) == plain
    with pytest.raises(InvalidTag):
        AESGCM(key).decrypt(iv, sealed + H(tag), aad + b"\0")


# 13.5, 13.6 CRC32C ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "crc"),
    [
        (b"", "00000000"),
        (b"123456789", "e3069283"),
        (bytes(32), "8a9136aa"),
        (b"\xff" * 32, "62a8ab43"),
        (bytes(range(32)), "46dd794e"),
        (bytes(range(31, -1, -1)), "113fdb5c"),
    ],
)
def test_crc(data: bytes, crc: str) -> None:
    assert crc32c(data).to_bytes(4, "big").hex() == crc


U = H(
    "0000000019880000000000000000000f050b0000000000010000000f000000000000000000000010"
    "00000000000000000000000000000000000000100000000000000000000000000000000000000000"
)
IPV6_ADDRESSES = "20010db800000000000000000000beef20010db800000000000000000000cafe"


@pytest.mark.parametrize(
    ("before", "covered", "crc"),
    [
        ("cb00712ac633642a", 88, "d37b3569"),
        ("cb00712ac633642a109212b9005c0000", 96, "b5d514f0"),
        (IPV6_ADDRESSES, 112, "c0cbf655"),
        (IPV6_ADDRESSES + "109212b9005c0000", 120, "f6b8c2fe"),
    ],
    ids=["IPv4", "IPv4 UDP", "IPv6", "IPv6 UDP"],
)
def test_crc_coverage(before: str, covered: int, crc: str) -> None:
    assert len(H(before) + U) == covered
    assert crc32c(H(before) + U).to_bytes(4, "big").hex() == crc
