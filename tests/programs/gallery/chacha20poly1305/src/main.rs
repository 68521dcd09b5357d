//! chacha20poly1305: messages are sealed, opened and tampered with, moving within a `Buffer`.
#![no_std]
#![no_main]

use chacha20poly1305::aead::{Aead, Buffer, Error as Refused, Payload};
use chacha20poly1305::{
    AeadInOut, ChaCha8Poly1305, ChaCha20Poly1305, KeyInit, Nonce, XChaCha20Poly1305, XNonce,
};
use gallery::*;

/// A buffer that moves the thread when the crate uses it.
struct Slow(Vec<u8>);

impl AsRef<[u8]> for Slow {
    fn as_ref(&self) -> &[u8] {
        hop_each(2);
        &self.0
    }
}

impl AsMut<[u8]> for Slow {
    fn as_mut(&mut self) -> &mut [u8] {
        hop_each(2);
        &mut self.0
    }
}

impl Buffer for Slow {
    fn extend_from_slice(&mut self, more: &[u8]) -> Result<(), Refused> {
        hop();
        self.0.extend_from_slice(more);
        Ok(())
    }

    fn truncate(&mut self, len: usize) {
        hop();
        self.0.truncate(len);
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

fn program() -> Result<()> {
    let mut seed = Seeded(24);
    let key = seed.bytes(32);
    let cipher = ChaCha20Poly1305::new_from_slice(&key).map_err(failed)?;
    for len in [0, 1, 15, 16, 63, 64, 65, 255, 256, 1000, 4097] {
        let (text, about) = (seed.bytes(len), seed.prose(3));
        let nonce = Nonce::try_from(&seed.bytes(12)[..]).map_err(failed)?;
        let mut buffer = Slow(text.clone());
        cipher
            .encrypt_in_place(&nonce, about.as_bytes(), &mut buffer)
            .map_err(failed)?;
        let sealed = buffer.0.clone();
        let payload = Payload {
            msg: &text,
            aad: about.as_bytes(),
        };
        let same = cipher.encrypt(&nonce, payload).map_err(failed)? == sealed;
        cipher
            .decrypt_in_place(&nonce, about.as_bytes(), &mut buffer)
            .map_err(failed)?;
        say!(
            "{len} bytes: {:016x} {} {same} {}",
            digest(&sealed),
            hex(&sealed[len..]),
            buffer.0 == text
        );
        for n in 0..6 {
            let mut bad = Slow(sealed.clone());
            let at = seed.below(bad.0.len() as u64) as usize;
            bad.0[at] ^= 1 << n;
            let opened = cipher.decrypt_in_place(&nonce, about.as_bytes(), &mut bad);
            say!("  byte {at} changed: {opened:?}, {}", bad.0.len());
        }
        let moved = cipher.decrypt(
            &nonce,
            Payload {
                msg: &sealed,
                aad: b"other",
            },
        );
        say!("  {:?}", moved.map_err(|e| e.to_string()));
    }
    let long = XChaCha20Poly1305::new_from_slice(&key).map_err(failed)?;
    let short = ChaCha8Poly1305::new_from_slice(&key).map_err(failed)?;
    for n in 0..20 {
        let mut buffer = Slow(seed.prose(30 + n).into_bytes());
        let nonce = XNonce::try_from(&seed.bytes(24)[..]).map_err(failed)?;
        long.encrypt_in_place(&nonce, b"", &mut buffer)
            .map_err(failed)?;
        short
            .encrypt_in_place(&Nonce::default(), b"twice", &mut buffer)
            .map_err(failed)?;
        say!("{} bytes: {:016x}", buffer.0.len(), digest(&buffer.0));
        short
            .decrypt_in_place(&Nonce::default(), b"twice", &mut buffer)
            .map_err(failed)?;
        long.decrypt_in_place(&nonce, b"", &mut buffer)
            .map_err(failed)?;
        say!("  {}", String::from_utf8_lossy(&buffer.0));
    }
    say!(
        "{:?}",
        ChaCha20Poly1305::new_from_slice(&key[1..])
            .map(|_| ())
            .map_err(|e| e.to_string())
    );
    Ok(())
}

#[dyad::main]
fn main() -> Result<()> {
    play(program)
}
