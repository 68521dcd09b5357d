// SPDX-License-Identifier: GPL-2.0-or-later
//! A CPU's registers, for instructions whose operands QEMU does not show.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

use dyad_abi::Isa;

/// `GArray`: only its first two members are public.
#[repr(C)]
struct RawArray {
    data: *mut c_char,
    len: c_uint,
}

/// `GByteArray`.
#[repr(C)]
struct RawBytes {
    data: *mut u8,
    len: c_uint,
}

/// `qemu_plugin_reg_descriptor`.
#[repr(C)]
struct RawDescriptor {
    handle: *mut c_void,
    name: *const c_char,
    feature: *const c_char,
}

unsafe extern "C" {
    fn qemu_plugin_get_registers() -> *mut RawArray;
    fn qemu_plugin_read_register(handle: *mut c_void, to: *mut RawBytes) -> c_int;
    fn qemu_plugin_read_memory_vaddr(address: u64, to: *mut RawBytes, len: usize) -> bool;
    // From the GLib that every QEMU is linked with.
    fn g_array_free(array: *mut RawArray, free_segment: c_int) -> *mut c_char;
    fn g_byte_array_new() -> *mut RawBytes;
    fn g_byte_array_set_size(array: *mut RawBytes, len: c_uint) -> *mut RawBytes;
}

/// The general registers of one CPU, by the numbers that instructions have for them, and memory as it sees it.
#[derive(Debug)]
pub struct Registers {
    handles: Vec<*mut c_void>,
    bytes: *mut RawBytes,
}

// SAFETY: 1. Handles are names; the array is used by the CPU's own thread only, which is where
// registers can be read at all.
unsafe impl Send for Registers {}

const X86: [&str; 16] = [
    "rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12", "r13",
    "r14", "r15",
];

impl Registers {
    /// Those of the calling CPU, which is being initialised.
    pub fn find(isa: Isa) -> Registers {
        let names: Vec<String> = match isa {
            Isa::X86_64 => X86.iter().map(|n| n.to_string()).collect(),
            Isa::Aarch64 => (0..31).map(|n| format!("x{n}")).collect(),
        };
        let mut handles = vec![std::ptr::null_mut(); names.len()];
        // SAFETY: 1. This is the CPU's initialisation callback. 2. The array has `len` descriptors with
        // C strings in them, and is the caller's to free; the strings are not freed with it.
        unsafe {
            let array = qemu_plugin_get_registers();
            for i in 0..(*array).len as usize {
                let d = (*array).data.cast::<RawDescriptor>().add(i);
                let name = CStr::from_ptr((*d).name).to_str().unwrap_or_default();
                if let Some(n) = names.iter().position(|wanted| wanted == name) {
                    handles[n] = (*d).handle;
                }
            }
            g_array_free(array, 1);
        }
        // SAFETY: 1. No requirements. It lives as long as the process.
        let bytes = unsafe { g_byte_array_new() };
        Registers { handles, bytes }
    }

    /// Reads one; `None` if the emulator does not show it. Only in a callback of this CPU that was
    /// registered to read registers.
    pub fn read(&mut self, number: u8) -> Option<u64> {
        let handle = *self.handles.get(usize::from(number))?;
        if handle.is_null() {
            return None;
        }
        // SAFETY: 1. The handle is one of this CPU's, and this is its thread, in a callback. 2. The
        // array is this CPU's own; it is emptied first, and QEMU appends as many bytes as it returns.
        unsafe {
            g_byte_array_set_size(self.bytes, 0);
            let len = qemu_plugin_read_register(handle, self.bytes);
            if len < 8 || (*self.bytes).len < 8 {
                return None;
            }
            // Guests are little-endian, and so is the host.
            Some((*self.bytes).data.cast::<u64>().read_unaligned())
        }
    }

    /// Reads a word of memory at a virtual address; `None` if nothing is mapped there that this CPU may read now. Only in a
    /// callback of this CPU.
    pub fn word_at(&mut self, address: u64) -> Option<u64> {
        // SAFETY: 1. This is the CPU's thread, in a callback. 2. The array is this CPU's own; QEMU makes it as long as what it reads,
        // and the length is looked at.
        unsafe {
            if !qemu_plugin_read_memory_vaddr(address, self.bytes, size_of::<u64>())
                || ((*self.bytes).len as usize) < size_of::<u64>()
            {
                return None;
            }
            // Guests are little-endian, and so is the host.
            Some((*self.bytes).data.cast::<u64>().read_unaligned())
        }
    }
}
