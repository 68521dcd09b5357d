//! ruzstd: Zstandard frames are written and read, moving within `Read` and `Write`.
#![no_std]
#![no_main]

use gallery::*;
use ruzstd::decoding::{FrameDecoder, StreamingDecoder};
use ruzstd::encoding::{CompressionLevel, compress, compress_to_vec};
use ruzstd::io::{Error as IoError, Read, Write};

/// Bytes that come in small pieces; the thread moves for each.
struct Source<'a>(&'a [u8]);

impl Read for Source<'_> {
    fn read(&mut self, out: &mut [u8]) -> Result<usize, IoError> {
        hop_each(2);
        let len = out.len().min(self.0.len()).min(29);
        let (now, rest) = self.0.split_at(len);
        out[..len].copy_from_slice(now);
        self.0 = rest;
        Ok(len)
    }
}

/// Bytes that are taken in small pieces; the thread moves for each.
struct Drain(Vec<u8>);

impl Write for &mut Drain {
    fn write(&mut self, bytes: &[u8]) -> Result<usize, IoError> {
        hop_each(2);
        let len = bytes.len().min(31);
        self.0.extend_from_slice(&bytes[..len]);
        Ok(len)
    }

    fn flush(&mut self) -> Result<(), IoError> {
        Ok(())
    }
}

fn expanded(frame: &[u8]) -> Result<Vec<u8>, String> {
    let mut decoder = StreamingDecoder::new(Source(frame)).map_err(|e| e.to_string())?;
    let (mut all, mut piece) = (Vec::new(), [0; 97]);
    loop {
        match decoder.read(&mut piece) {
            Ok(0) => return Ok(all),
            Ok(n) => all.extend_from_slice(&piece[..n]),
            Err(e) => return Err(e.to_string()),
        }
    }
}

fn program() -> Result<()> {
    let mut seed = Seeded(25);
    let data = [
        Vec::new(),
        vec![7; 5000],
        seed.bytes(1500),
        seed.prose(900).into_bytes(),
        [
            seed.prose(200).into_bytes(),
            seed.bytes(300),
            [1, 2, 3].repeat(400),
        ]
        .concat(),
    ];
    let mut last = Vec::new();
    for bytes in &data {
        for level in [CompressionLevel::Uncompressed, CompressionLevel::Fastest] {
            let mut drain = Drain(Vec::new());
            compress(Source(bytes), &mut drain, level);
            let again = expanded(&drain.0).map_err(Error::msg)?;
            let whole = compress_to_vec(&bytes[..], level);
            say!(
                "{} to {} bytes {:016x}, equal: {} {}",
                bytes.len(),
                drain.0.len(),
                digest(&drain.0),
                again == *bytes,
                whole.len()
            );
            last = drain.0;
        }
    }
    for n in 0..40 {
        let mut bad = last.clone();
        let at = seed.below(bad.len() as u64) as usize;
        bad[at] ^= 1 << (n % 8);
        let found = expanded(&bad);
        say!(
            "byte {at}: {}",
            found.map_or_else(|e| e, |b| format!("{} bytes {:016x}", b.len(), digest(&b)))
        );
    }
    let mut decoder = FrameDecoder::new();
    let mut out = vec![0; 4000];
    let len = decoder.decode_all(&last, &mut out).map_err(failed)?;
    say!(
        "{len} bytes {:?} {:?}",
        out[..len] == data[4],
        decoder.get_checksum_from_data() == decoder.get_calculated_checksum()
    );
    say!(
        "{:?}",
        decoder
            .decode_all(&last[..50], &mut out)
            .map_err(|e| e.to_string())
    );
    Ok(())
}

#[dyad::main]
fn main() -> Result<()> {
    play(program)
}
