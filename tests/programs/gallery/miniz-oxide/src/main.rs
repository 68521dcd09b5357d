//! miniz_oxide: data is deflated and inflated at all levels, in streams that the loop feeds while it moves.
#![no_std]
#![no_main]

use gallery::*;
use miniz_oxide::deflate::core::CompressorOxide;
use miniz_oxide::deflate::stream::deflate;
use miniz_oxide::deflate::{compress_to_vec, compress_to_vec_zlib};
use miniz_oxide::inflate::stream::{InflateState, inflate};
use miniz_oxide::inflate::{decompress_to_vec, decompress_to_vec_zlib_with_limit};
use miniz_oxide::{DataFormat, MZFlush, MZStatus};

/// Deflates through a small window; the thread moves between the calls.
fn deflated(data: &[u8], level: u8) -> Result<Vec<u8>> {
    let mut state = CompressorOxide::default();
    state.set_format_and_level(DataFormat::Zlib, level);
    let (mut out, mut window, mut rest) = (Vec::new(), [0; 97], data);
    loop {
        let piece = &rest[..rest.len().min(211)];
        let flush = match rest.len() {
            0..=211 => MZFlush::Finish,
            _ => MZFlush::None,
        };
        hop_each(2);
        let r = deflate(&mut state, piece, &mut window, flush);
        rest = &rest[r.bytes_consumed..];
        out.extend_from_slice(&window[..r.bytes_written]);
        if r.status.map_err(failed)? == MZStatus::StreamEnd {
            return Ok(out);
        }
    }
}

/// Inflates through a small window; the thread moves between the calls.
fn inflated(data: &[u8]) -> Result<Vec<u8>> {
    let mut state = InflateState::new_boxed(DataFormat::Zlib);
    let (mut out, mut window, mut rest) = (Vec::new(), [0; 333], data);
    loop {
        hop_each(2);
        let r = inflate(
            &mut state,
            &rest[..rest.len().min(64)],
            &mut window,
            MZFlush::None,
        );
        rest = &rest[r.bytes_consumed..];
        out.extend_from_slice(&window[..r.bytes_written]);
        if r.status.map_err(failed)? == MZStatus::StreamEnd {
            return Ok(out);
        }
    }
}

fn program() -> Result<()> {
    let mut seed = Seeded(7);
    let mut data = seed.prose(800).into_bytes();
    data.extend(seed.bytes(300));
    data.extend([7; 2000]);
    for level in 0..=10 {
        let raw = compress_to_vec(&data, level);
        let again = decompress_to_vec(&raw).map_err(failed)?;
        let stream = deflated(&data, level)?;
        let twice = inflated(&stream)?;
        say!(
            "level {level}: {} to {} bytes {:016x} {}, stream {} {:016x} {}",
            data.len(),
            raw.len(),
            digest(&raw),
            again == data,
            stream.len(),
            digest(&stream),
            twice == data
        );
    }
    let packed = compress_to_vec_zlib(&data, 6);
    for n in 0..30 {
        let mut bad = packed.clone();
        let at = seed.below(bad.len() as u64) as usize;
        bad[at] ^= 1 << (n % 8);
        hop();
        let found = decompress_to_vec_zlib_with_limit(&bad, 10_000);
        say!(
            "byte {at}: {}",
            found.map_or_else(|e| e.to_string(), |v| format!("{:016x}", digest(&v)))
        );
    }
    Ok(())
}

#[dyad::main]
fn main() -> Result<()> {
    play(program)
}
