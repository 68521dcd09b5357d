//! blake3: hashes, keyed hashes, derived keys and extended output, moving between updates.
#![no_std]
#![no_main]

use blake3::{CHUNK_LEN, Hash, Hasher};
use gallery::*;

/// Hashes data in pieces; a point is at the head of the loop.
#[dyad::points(loops)]
fn in_pieces(hasher: &mut Hasher, data: &[u8], piece: usize) -> u64 {
    let mut count = 0;
    for part in data.chunks(piece) {
        ask_each(2);
        hasher.update(part);
        count_move();
        count += 1;
    }
    count
}

fn program() -> Result<()> {
    let mut seed = Seeded(23);
    let key: [u8; 32] = core::array::from_fn(|_| seed.word() as u8);
    say!("{}", blake3::hash(b"abc"));
    for len in [
        0, 1, 63, 64, 65, 1023, CHUNK_LEN, 1025, 2048, 3073, 8192, 40_000,
    ] {
        let data = seed.bytes(len);
        let whole = blake3::hash(&data);
        let mut pieces = Hasher::new();
        let count = in_pieces(&mut pieces, &data, 777);
        let keyed = blake3::keyed_hash(&key, &data);
        hop();
        say!(
            "{len} bytes: {whole}, {count} pieces {}",
            pieces.finalize() == whole
        );
        say!(
            "  keyed {keyed}, derived {:016x}",
            digest(&blake3::derive_key("gallery 2026", &data))
        );
        let mut out = vec![0; 333];
        let mut reader = pieces.finalize_xof();
        for part in out.chunks_mut(40) {
            hop_each(2);
            reader.fill(part);
        }
        reader.set_position(100);
        let mut again = [0; 50];
        reader.fill(&mut again);
        say!(
            "  extended {:016x} {} {}",
            digest(&out),
            out[100..150] == again,
            reader.position()
        );
    }
    let mut hasher = Hasher::new_keyed(&key);
    let data = seed.bytes(6000);
    for piece in [1000, 333, 64, 7] {
        in_pieces(&mut hasher, &data, piece);
        say!("{} of {}", hasher.finalize().to_hex(), hasher.count());
    }
    hasher.reset();
    let text = hasher.finalize().to_hex();
    say!(
        "{} {}",
        Hash::from_hex(&*text).is_ok_and(|h| h == hasher.finalize()),
        Hash::from_hex("12").is_err()
    );
    Ok(())
}

#[dyad::main]
fn main() -> Result<()> {
    play(program)
}
