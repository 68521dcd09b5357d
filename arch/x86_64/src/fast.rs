//! System calls: entry, and the way back of those that are done at once.
//!
//! The program counter, stack pointer, flags and the registers that the C convention preserves go
//! to the current thread's register area, which is *partial* from then on; the arguments stay in
//! registers:
//!
//! ```text
//!  word (rdi)
//!  operation not 0 ─▶ syscall ─▶ status ─▶ rest 0, SYSRET where it came from
//!  operation 0 ─▶ invoke_fastpath ─ LONG ─▶ invoke_slowpath
//!                       └─ token ──────────────────┬─ ENTER ─▶ arguments, badge, token; rest 0, IRETQ
//!                                                  └─ status ─▶ as above, preserved registers 0, too
//!  word 0 ─▶ return_fastpath, return_slowpath ─┬─ ENTER ─▶ status 0, results; rest 0, SYSRET to area
//!                                              └─ status ─▶ as above, preserved registers 0, too
//!  any of them ─▶ complete_area ─▶ ... ─▶ resume_user (never returns here)
//! ```
//!
//! Who invokes, or ends an invocation, keeps nothing in registers: none are saved for that. The base
//! of fs is set again both ways, because user mode can load fs.
//!
//! Invocations are entered by IRETQ because argument 3 is in `rcx`, which SYSRET overwrites. Its
//! frame is the area itself, whose segments are those of user mode since it was last resumed.
//!
//! `rax` carries no argument into a system call: it is the status afterwards. Direction and alignment-check
//! flags are cleared by the mask that `traps` sets. SYSRET faults in the kernel, on the user's
//! stack, if `rcx` is not canonical; so a return address at the end of the user half becomes 0, as
//! in [`context::sanitise`](crate::context::sanitise).
//!
//! Interrupts are masked from the first to the last instruction. An NMI or a machine check takes a
//! stack of its own, and `traps` looks at the base of gs to tell whether it came before the first
//! or after the last SWAPGS; either ends the machine.

use core::arch::global_asm;
use core::mem::offset_of;

use dyad_core::syscall::entry;
use dyad_core::syscall::slowpath::FastReturn;
use dyad_machine::cpu::CpuLocal;

use crate::context::{
    FLAGS_FIXED, FS_BASE, PARTIAL, PARTIAL_END, R12, R13, R14, R15, RBP, RBX, RDI, RFLAGS, RIP,
    RSP, VECTOR,
};
use crate::cpu;
use crate::platform::X86;

global_asm!(
    r#"
    .section .text.vectors, "ax"
    .balign 16
    .globl  syscall_entry
syscall_entry:
    swapgs
    mov     rax, gs:[{area}]
    mov     [rax + {rsp}], rsp
    mov     rsp, gs:[{kernel_stack}]
    mov     [rax + {rip}], rcx
    mov     [rax + {rflags}], r11
    mov     ecx, edi
    cmp     rcx, rdi
    je      2f
    bt      qword ptr [rax + {rip}], 47
    jc      8f
1:  mov     qword ptr [rax + {vector}], {partial}
    mov     [rax + {rbx}], rbx
    mov     [rax + {rbp}], rbp
    mov     [rax + {r12}], r12
    mov     [rax + {r13}], r13
    mov     [rax + {r14}], r14
    mov     [rax + {r15}], r15
    xor     ebp, ebp                    // the end of the chain of frame records
    mov     rbx, rax
    mov     rcx, r10
    call    {syscall}

    // rbx: area, rax: status, rdx: value, r12 to r15 as they were
5:  mov     rcx, [rbx + {rip}]
    mov     r11, [rbx + {rflags}]
    mov     rbp, [rbx + {rbp}]
    mov     rsp, [rbx + {rsp}]
    mov     rbx, [rbx + {rbx}]
    xor     esi, esi
    xor     edi, edi
    xor     r8d, r8d
    xor     r9d, r9d
    xor     r10d, r10d
    swapgs
    sysretq

    // Invocations and their ends: who makes them keeps nothing in registers.
2:  mov     rbx, rax
    mov     r12, rsi
    mov     r13, rdx
    mov     r14, r10
    mov     r15, r8
    xor     ebp, ebp
    test    edi, edi
    jz      3f
    mov     [rax + {rdi}], rdi
    call    {invoke_fastpath}
    cmp     rax, {long}
    je      7f
    mov     r9, rax
4:  mov     qword ptr [rbx + {rflags}], {flags}
    mov     r8, rdx
    mov     eax, [rbx + {fs_base}]
    mov     edx, [rbx + {fs_base} + 4]
    mov     ecx, 0xc0000100             // base of fs
    wrmsr
    mov     rdi, r12
    mov     rsi, r13
    mov     rdx, r14
    mov     rcx, r15
    lea     rsp, [rbx + {rip}]
    xor     eax, eax
    xor     ebx, ebx                    // ebp is 0
    xor     r10d, r10d
    xor     r11d, r11d
    xor     r12d, r12d
    xor     r13d, r13d
    xor     r14d, r14d
    xor     r15d, r15d
    swapgs
    iretq

    // The slow path.
7:  mov     qword ptr [rbx + {vector}], {partial_end}
    mov     rdi, [rbx + {rdi}]
    mov     rsi, r12
    mov     rdx, r13
    mov     rcx, r14
    mov     r8, r15
    call    {invoke_slowpath}
    mov     r9, gs:[{token}]
    cmp     rax, -1
    je      4b
    jmp     6f

3:  call    {return_fastpath}
    cmp     rax, -1
    jne     9f
10: mov     eax, [rbx + {fs_base}]
    mov     edx, [rbx + {fs_base} + 4]
    mov     ecx, 0xc0000100             // base of fs
    wrmsr
    mov     rdx, r12
    mov     rsi, r13
    mov     rdi, r14
    mov     r8, r15
    mov     rcx, [rbx + {rip}]
    mov     rsp, [rbx + {rsp}]
    mov     r11d, {flags}
    xor     eax, eax
    xor     ebx, ebx
    xor     r9d, r9d
    xor     r10d, r10d
    xor     r12d, r12d
    xor     r13d, r13d
    xor     r14d, r14d
    xor     r15d, r15d
    swapgs
    sysretq

    // The slow path.
9:  mov     qword ptr [rbx + {vector}], {partial_end}
    mov     rdi, r12
    mov     rsi, r13
    mov     rdx, r14
    mov     rcx, r15
    call    {return_slowpath}
    cmp     rax, -1
    je      10b

    // Refused: nothing has been saved that could be given back.
6:  mov     qword ptr [rbx + {rbx}], 0
    mov     [rbx + {rbp}], rbp
    xor     r12d, r12d
    xor     r13d, r13d
    xor     r14d, r14d
    xor     r15d, r15d
    bt      qword ptr [rbx + {rip}], 47
    jnc     5b
    mov     qword ptr [rbx + {rip}], 0
    jmp     5b

8:  mov     qword ptr [rax + {rip}], 0
    jmp     1b
    "#,
    area = const cpu::OFFSET_AREA,
    kernel_stack = const cpu::OFFSET_KERNEL_STACK,
    token = const cpu::OFFSET_LOCAL + offset_of!(CpuLocal, fast_token),
    rsp = const RSP * 8,
    rip = const RIP * 8,
    rflags = const RFLAGS * 8,
    rbx = const RBX * 8,
    rdi = const RDI * 8,
    rbp = const RBP * 8,
    r12 = const R12 * 8,
    r13 = const R13 * 8,
    r14 = const R14 * 8,
    r15 = const R15 * 8,
    vector = const VECTOR * 8,
    partial = const PARTIAL,
    partial_end = const PARTIAL_END,
    fs_base = const FS_BASE * 8,
    flags = const FLAGS_FIXED,
    long = const entry::LONG as i64,
    syscall = sym syscall,
    invoke_fastpath = sym invoke_fastpath,
    invoke_slowpath = sym invoke_slowpath,
    return_fastpath = sym return_fastpath,
    return_slowpath = sym return_slowpath,
);

unsafe extern "C" {
    /// Entry point of `syscall`.
    pub static syscall_entry: u8;
}

// What the frame of IRETQ has to be, and what the entry tests bit 47 for.
const _: () = {
    assert!(RSP == RIP + 3 && RFLAGS == RIP + 2);
    assert!(dyad_abi::user::USER_END == 1 << 47);
};

extern "C" fn syscall(word: u64, a0: u64, a1: u64, a2: u64, a3: u64, a4: u64) -> FastReturn {
    #[cfg(feature = "ktest")]
    if let Some(r) = dyad_core::ktest::user_calls::intercept::<X86>(word, [a0, a1, a2, a3, a4]) {
        return r;
    }
    entry::syscall::<X86>(word, a0, a1, a2, a3, a4)
}

extern "C" fn invoke_fastpath(word: u64) -> FastReturn {
    entry::invoke_fastpath::<X86>(word)
}

extern "C" fn invoke_slowpath(word: u64, a0: u64, a1: u64, a2: u64, a3: u64) -> FastReturn {
    #[cfg(feature = "ktest")]
    if let Some(r) = dyad_core::ktest::user_calls::intercept::<X86>(word, [a0, a1, a2, a3, 0]) {
        return r;
    }
    entry::invoke_slowpath::<X86>(word, a0, a1, a2, a3)
}

extern "C" fn return_fastpath(_word: u64, a0: u64) -> FastReturn {
    entry::return_fastpath::<X86>(a0)
}

extern "C" fn return_slowpath(a0: u64, a1: u64, a2: u64, a3: u64) -> FastReturn {
    #[cfg(feature = "ktest")]
    if let Some(r) = dyad_core::ktest::user_calls::intercept::<X86>(0, [a0, a1, a2, a3, 0]) {
        return r;
    }
    entry::return_slowpath::<X86>(a0, a1, a2, a3)
}
