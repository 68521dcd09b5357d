//! The scenes: each writes what it has computed, and passes migration points everywhere in between.

mod algorithms;
mod bignum;
mod cells;
mod closures;
mod collections;
mod drops;
mod formatting;
mod futures;
mod idioms;
mod iterators;
mod lanes;
mod large;
mod machine;
mod matrix;
mod recursion;
mod references;
mod text;
mod traits;

use dyad::prelude::*;

/// One of them.
pub struct Scene {
    /// Its name, which is that of its file.
    pub name: &'static str,
    /// Writes what it has computed.
    pub run: fn(&mut String),
    /// Of what it writes, as a program of the host that moves nowhere: [`digest`].
    pub digest: u64,
}

/// All of them.
pub const ALL: [Scene; 18] = [
    scene("text", text::run, 0xde5a_3a0a_6fb0_b4b0),
    scene("bignum", bignum::run, 0xa951_c395_159f_d895),
    scene("matrix", matrix::run, 0xdd0e_6d2a_3c55_9669),
    scene("iterators", iterators::run, 0xfb0d_9200_8e11_2445),
    scene("closures", closures::run, 0xe793_91c9_84a3_a1cf),
    scene("traits", traits::run, 0xd2db_dd51_5631_beda),
    scene("collections", collections::run, 0x4744_9bde_b153_bf50),
    scene("drops", drops::run, 0x7c5d_e407_b5d9_a3d8),
    scene("recursion", recursion::run, 0x8549_bde3_1d01_5260),
    scene("large", large::run, 0xdb25_48ae_3d5c_07a8),
    scene("machine", machine::run, 0x7e0e_2cf5_50bd_14c3),
    scene("references", references::run, 0x0307_7015_b71c_426e),
    scene("formatting", formatting::run, 0x46c3_bf4c_fa8b_f88d),
    scene("cells", cells::run, 0x7b46_f2dc_093b_1eb1),
    scene("algorithms", algorithms::run, 0xd087_c989_a355_e429),
    scene("futures", futures::run, 0x4285_d8ee_27f0_ae04),
    scene("lanes", lanes::run, 0x0b39_2a8b_44a7_a9f9),
    scene("idioms", idioms::run, 0x5031_471c_2564_e30e),
];

const fn scene(name: &'static str, run: fn(&mut String), digest: u64) -> Scene {
    Scene { name, run, digest }
}

/// FNV-1a of a text.
pub fn digest(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}
