//! aes: blocks of all key sizes, one by one and many at once, moving within closures that the crate calls.
#![no_std]
#![no_main]

use aes::cipher::{
    Array, Block, BlockCipherDecBackend, BlockCipherDecClosure, BlockCipherDecrypt,
    BlockCipherEncBackend, BlockCipherEncClosure, BlockCipherEncrypt, BlockSizeUser, KeyInit,
    ParBlocksSizeUser, consts::U16, typenum::Unsigned,
};
use aes::{Aes128, Aes192, Aes256};
use gallery::*;

type Blocks = Vec<Block<Aes128>>;

/// Encrypts or decrypts blocks with what the crate hands to it; the thread moves between them.
struct Each<'a>(&'a mut Blocks);

impl BlockSizeUser for Each<'_> {
    type BlockSize = U16;
}

impl BlockCipherEncClosure for Each<'_> {
    fn call<B: BlockCipherEncBackend<BlockSize = U16>>(self, backend: &B) {
        for block in self.0.iter_mut() {
            hop_each(2);
            backend.encrypt_block(block.into());
        }
    }
}

impl BlockCipherDecClosure for Each<'_> {
    fn call<B: BlockCipherDecBackend<BlockSize = U16>>(self, backend: &B) {
        for block in self.0.iter_mut() {
            hop_each(2);
            backend.decrypt_block(block.into());
        }
    }
}

/// How many blocks the crate encrypts at once depends on the ISA's own instructions, and is not said.
struct Width;

impl BlockSizeUser for Width {
    type BlockSize = U16;
}

impl BlockCipherEncClosure for Width {
    fn call<B: BlockCipherEncBackend<BlockSize = U16>>(self, _: &B) {
        hop();
        assert!(<B as ParBlocksSizeUser>::ParBlocksSize::USIZE > 0);
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

fn sum(blocks: &Blocks) -> u64 {
    digest(
        &blocks
            .iter()
            .flat_map(|b| b.iter().copied())
            .collect::<Vec<_>>(),
    )
}

fn try_out<C>(name: &str, seed: &mut Seeded) -> Result<()>
where
    C: KeyInit + BlockCipherEncrypt + BlockCipherDecrypt + BlockSizeUser<BlockSize = U16>,
{
    let cipher = C::new_from_slice(&seed.bytes(C::key_size())).map_err(failed)?;
    let text: Blocks = (0..100)
        .map(|_| Array::from_fn(|_| seed.word() as u8))
        .collect();
    let (mut one_by_one, mut at_once) = (text.clone(), text.clone());
    cipher.encrypt_with_backend(Each(&mut one_by_one));
    cipher.encrypt_blocks(&mut at_once);
    cipher.encrypt_with_backend(Width);
    say!(
        "{name}: {:016x}, the same at once: {}",
        sum(&one_by_one),
        at_once == one_by_one
    );
    cipher.decrypt_with_backend(Each(&mut one_by_one));
    cipher.decrypt_blocks(&mut at_once);
    say!("  decrypted: {} {}", one_by_one == text, at_once == text);
    // Cipher block chaining, and a counter.
    let (mut last, mut counter) = (Block::<C>::default(), 0u128);
    for block in &text {
        hop_each(2);
        let mut pad = Array::from(counter.to_be_bytes());
        cipher.encrypt_block(&mut pad);
        last = Array::from_fn(|n| last[n] ^ block[n] ^ pad[n]);
        cipher.encrypt_block(&mut last);
        counter += 1;
    }
    say!("  chained: {}", hex(&last));
    say!(
        "  {:?}",
        C::new_from_slice(&[0; 15])
            .map(|_| ())
            .map_err(|e| e.to_string())
    );
    Ok(())
}

fn program() -> Result<()> {
    let mut seed = Seeded(22);
    try_out::<Aes128>("AES-128", &mut seed)?;
    try_out::<Aes192>("AES-192", &mut seed)?;
    try_out::<Aes256>("AES-256", &mut seed)?;
    // FIPS 197, appendix C.1.
    let cipher = Aes128::new(&Array::from_fn(|n| n as u8));
    let mut block = Array::from_fn(|n| 0x11 * n as u8);
    cipher.encrypt_block(&mut block);
    say!("{}", hex(&block));
    Ok(())
}

#[dyad::main]
fn main() -> Result<()> {
    play(program)
}
