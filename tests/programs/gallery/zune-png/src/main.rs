//! zune-png: pictures of all kinds are decoded, moving within the byte source that the crate reads.
#![no_std]
#![no_main]

use gallery::*;
use miniz_oxide::deflate::compress_to_vec_zlib;
use zune_core::bytestream::{ZByteIoError, ZByteReaderTrait, ZCursor, ZSeekFrom};
use zune_core::options::DecoderOptions;
use zune_core::result::DecodingResult;
use zune_png::PngDecoder;

/// Bytes that move the thread when they are read.
struct Slow<'a>(ZCursor<&'a [u8]>);

impl ZByteReaderTrait for Slow<'_> {
    fn read_byte_no_error(&mut self) -> u8 {
        hop_each(11);
        self.0.read_byte_no_error()
    }

    fn read_exact_bytes(&mut self, out: &mut [u8]) -> Result<(), ZByteIoError> {
        hop();
        self.0.read_exact_bytes(out)
    }

    fn read_bytes(&mut self, out: &mut [u8]) -> Result<usize, ZByteIoError> {
        hop();
        self.0.read_bytes(out)
    }

    fn peek_bytes(&mut self, out: &mut [u8]) -> Result<usize, ZByteIoError> {
        hop();
        self.0.peek_bytes(out)
    }

    fn peek_exact_bytes(&mut self, out: &mut [u8]) -> Result<(), ZByteIoError> {
        hop();
        self.0.peek_exact_bytes(out)
    }

    fn z_seek(&mut self, to: ZSeekFrom) -> Result<u64, ZByteIoError> {
        self.0.z_seek(to)
    }

    fn is_eof(&mut self) -> Result<bool, ZByteIoError> {
        self.0.is_eof()
    }

    fn z_position(&mut self) -> Result<u64, ZByteIoError> {
        self.0.z_position()
    }

    fn read_remaining(&mut self, sink: &mut Vec<u8>) -> Result<usize, ZByteIoError> {
        self.0.read_remaining(sink)
    }
}

/// The checksum of a chunk.
fn crc(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |c, b| {
        (0..8).fold(c ^ u32::from(*b), |c, _| {
            (c >> 1) ^ (0xedb8_8320 & (c & 1).wrapping_neg())
        })
    })
}

fn chunk(file: &mut Vec<u8>, kind: &[u8; 4], content: &[u8]) {
    file.extend((content.len() as u32).to_be_bytes());
    let named = [&kind[..], content].concat();
    file.extend(&named);
    file.extend(crc(&named).to_be_bytes());
}

/// A picture of seeded rows, each with a filter of its own.
fn file(seed: &mut Seeded, (width, height): (u32, u32), depth: u8, kind: u8) -> Vec<u8> {
    let channels = [1, 0, 3, 1, 2, 0, 4][usize::from(kind)];
    let row = (width * channels * u32::from(depth)).div_ceil(8);
    let mut rows = Vec::new();
    for _ in 0..height {
        rows.push(seed.below(5) as u8);
        // Of a palette with 2 to the depth colours.
        rows.extend((0..row).map(|n| (seed.word() as u8) >> (n % 3)));
    }
    let mut file = b"\x89PNG\r\n\x1a\n".to_vec();
    let header = [
        &width.to_be_bytes()[..],
        &height.to_be_bytes(),
        &[depth, kind, 0, 0, 0],
    ]
    .concat();
    chunk(&mut file, b"IHDR", &header);
    if kind == 3 {
        chunk(&mut file, b"PLTE", &seed.bytes(3 << depth));
    }
    for part in compress_to_vec_zlib(&rows, 6).chunks(200) {
        chunk(&mut file, b"IDAT", part);
    }
    chunk(&mut file, b"IEND", &[]);
    file
}

fn decoded(bytes: &[u8]) -> String {
    let options = DecoderOptions::default().png_set_confirm_crc(true);
    let mut decoder = PngDecoder::new_with_options(Slow(ZCursor::new(bytes)), options);
    let pixels = match decoder.decode() {
        Ok(DecodingResult::U8(all)) => all,
        Ok(DecodingResult::U16(all)) => all.into_iter().flat_map(u16::to_be_bytes).collect(),
        Ok(_) => return "another kind of pixels".into(),
        Err(e) => return format!("{e:?}"),
    };
    let (size, colours) = (decoder.dimensions(), decoder.colorspace());
    format!(
        "{size:?} {colours:?} {:?}, {} bytes, {:016x}",
        decoder.depth(),
        pixels.len(),
        digest(&pixels)
    )
}

fn program() -> Result<()> {
    let mut seed = Seeded(31);
    let kinds = [
        (1, 0),
        (2, 0),
        (4, 0),
        (8, 0),
        (16, 0),
        (8, 2),
        (16, 2),
        (8, 3),
        (8, 4),
        (16, 4),
        (8, 6),
        (16, 6),
    ];
    for (depth, kind) in kinds {
        let size = (3 + seed.below(40) as u32, 2 + seed.below(30) as u32);
        let bytes = file(&mut seed, size, depth, kind);
        say!(
            "depth {depth}, kind {kind}: {} bytes, {}",
            bytes.len(),
            decoded(&bytes)
        );
    }
    let good = file(&mut seed, (33, 17), 8, 2);
    for n in 0..20 {
        let mut bad = good.clone();
        let at = if n < 10 {
            n * 3
        } else {
            seed.below(bad.len() as u64) as usize
        };
        bad[at] ^= 0x11;
        say!("byte {at}: {}", decoded(&bad));
    }
    say!("{}", decoded(&good[..200]));
    Ok(())
}

#[dyad::main]
fn main() -> Result<()> {
    play(program)
}
