//! sha2: digests of seeded data, in one piece and in many, moving between updates and within an iterator.
#![no_std]
#![no_main]

use gallery::*;
use sha2::{Digest, Sha224, Sha256, Sha384, Sha512, Sha512_256};

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// The digest of data in one piece, and whether it is that of the same data in pieces of random length.
fn both<D: Digest>(name: &str, data: &[u8], seed: &mut Seeded) {
    let whole = D::digest(data);
    let (mut pieces, mut rest) = (D::new(), data);
    while !rest.is_empty() {
        let (piece, more) = rest.split_at(rest.len().min(1 + seed.below(150) as usize));
        pieces.update(piece);
        hop_each(2);
        rest = more;
    }
    let same = pieces.finalize() == whole;
    say!("{name} {} bytes: {} {same}", data.len(), hex(&whole));
}

/// Bytes that move the thread while the crate's caller hashes them.
struct Slow<'a>(&'a [u8]);

impl AsRef<[u8]> for Slow<'_> {
    fn as_ref(&self) -> &[u8] {
        hop();
        self.0
    }
}

fn program() -> Result<()> {
    let mut seed = Seeded(3);
    say!("{}", hex(&Sha256::digest(b"abc")));
    for len in [0, 55, 56, 64, 111, 112, 1000, 5000] {
        let data = seed.bytes(len);
        both::<Sha224>("sha224", &data, &mut seed);
        both::<Sha256>("sha256", &data, &mut seed);
        both::<Sha384>("sha384", &data, &mut seed);
        both::<Sha512>("sha512", &data, &mut seed);
        both::<Sha512_256>("sha512/256", &data, &mut seed);
    }
    let mut chain = Sha256::digest(b"seed");
    for _ in 0..100 {
        chain = Sha256::new()
            .chain_update(Slow(&chain))
            .chain_update("link")
            .finalize();
    }
    say!("a chain of 100: {}", hex(&chain));
    let tree = (0..64u32).map(|n| {
        hop_each(2);
        Sha512::digest(n.to_be_bytes())
    });
    let root = tree
        .fold(Sha512::new(), |all, leaf| all.chain_update(leaf))
        .finalize();
    say!("64 leaves: {}", hex(&root));
    Ok(())
}

#[dyad::main]
fn main() -> Result<()> {
    play(program)
}
