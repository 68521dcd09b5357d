//! lz4_flex: blocks are compressed and expanded, moving in the loops over blocks.
#![no_std]
#![no_main]

use gallery::*;
use lz4_flex::block::{
    DecompressError, compress, compress_into, compress_prepend_size, compress_with_dict,
    decompress, decompress_into, decompress_size_prepended, decompress_with_dict,
    get_maximum_output_size,
};

fn block(seed: &mut Seeded, n: u64) -> Vec<u8> {
    match n % 3 {
        0 => seed.prose(300).into_bytes(),
        1 => seed.bytes(700),
        _ => vec![n as u8; 3000],
    }
}

fn wrong(e: DecompressError) -> String {
    hop();
    e.to_string()
}

#[dyad::points(loops)]
fn round_trips(blocks: &[Vec<u8>]) -> usize {
    let mut equal = 0;
    for b in blocks {
        ask_each(1);
        let packed = compress(b);
        count_move();
        ask_each(1);
        equal += usize::from(decompress(&packed, b.len()).is_ok_and(|c| c == *b));
        count_move();
    }
    equal
}

fn program() -> Result<()> {
    let mut seed = Seeded(6);
    let blocks: Vec<Vec<u8>> = (0..60).map(|n| block(&mut seed, n)).collect();
    for b in &blocks[..12] {
        let packed = compress_prepend_size(b);
        hop();
        let again = decompress_size_prepended(&packed).map_err(failed)?;
        hop();
        say!(
            "{} bytes to {}, {:016x}, {}",
            b.len(),
            packed.len(),
            digest(&packed),
            again == *b
        );
    }
    say!(
        "{} of {} blocks are equal",
        round_trips(&blocks),
        blocks.len()
    );

    let dictionary = seed.prose(500).into_bytes();
    for n in 0..20 {
        let text = seed.prose(20 + n).into_bytes();
        let packed = compress_with_dict(&text, &dictionary);
        hop();
        let again = decompress_with_dict(&packed, text.len(), &dictionary).map_err(failed)?;
        say!(
            "{} bytes to {} with a dictionary, {}",
            text.len(),
            packed.len(),
            again == text
        );
    }

    let text = seed.prose(200).into_bytes();
    let mut space = vec![0; get_maximum_output_size(text.len())];
    let len = compress_into(&text, &mut space).map_err(failed)?;
    let mut out = vec![0; text.len()];
    say!(
        "{:?}",
        decompress_into(&space[..len], &mut out).map_err(wrong)
    );
    say!(
        "{:?}",
        decompress_into(&space[..len], &mut out[..100]).map_err(wrong)
    );
    for n in 0..40 {
        let mut bad = space[..len].to_vec();
        bad[n * len / 40] ^= 0x5a;
        let found = decompress(&bad, text.len())
            .map(|b| digest(&b))
            .map_err(wrong);
        say!("byte {} changed: {found:x?}", n * len / 40);
    }
    Ok(())
}

#[dyad::main]
fn main() -> Result<()> {
    play(program)
}
