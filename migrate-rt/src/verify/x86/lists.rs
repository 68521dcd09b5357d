//! Which instructions are accepted as they are, and which are refused for what they do.

use iced_x86::Mnemonic;

/// Instructions whose operands' accesses, as the decoder knows them, say everything.
pub(super) const ORDINARY: [Mnemonic; 38] = [
    Mnemonic::Adc,
    Mnemonic::Add,
    Mnemonic::And,
    // Without a source bit the destination stays what it was, or is undefined.
    Mnemonic::Bsf,
    Mnemonic::Bsr,
    Mnemonic::Bswap,
    Mnemonic::Cmp,
    Mnemonic::Dec,
    Mnemonic::Imul,
    Mnemonic::Inc,
    Mnemonic::Lzcnt,
    Mnemonic::Movnti,
    Mnemonic::Movsx,
    Mnemonic::Movsxd,
    Mnemonic::Neg,
    Mnemonic::Not,
    Mnemonic::Or,
    Mnemonic::Rcl,
    Mnemonic::Rcr,
    Mnemonic::Rol,
    Mnemonic::Ror,
    Mnemonic::Sal,
    Mnemonic::Sar,
    Mnemonic::Sbb,
    Mnemonic::Shl,
    Mnemonic::Shld,
    Mnemonic::Shr,
    Mnemonic::Shrd,
    Mnemonic::Sub,
    Mnemonic::Test,
    Mnemonic::Tzcnt,
    Mnemonic::Xadd,
    Mnemonic::Xchg,
    Mnemonic::Xor,
    Mnemonic::Bt,
    Mnemonic::Bts,
    Mnemonic::Btr,
    Mnemonic::Btc,
];

/// Moves that may leave the destination as it is.
pub(super) const CONDITIONAL_MOVES: [Mnemonic; 16] = [
    Mnemonic::Cmova,
    Mnemonic::Cmovae,
    Mnemonic::Cmovb,
    Mnemonic::Cmovbe,
    Mnemonic::Cmove,
    Mnemonic::Cmovg,
    Mnemonic::Cmovge,
    Mnemonic::Cmovl,
    Mnemonic::Cmovle,
    Mnemonic::Cmovne,
    Mnemonic::Cmovno,
    Mnemonic::Cmovnp,
    Mnemonic::Cmovns,
    Mnemonic::Cmovo,
    Mnemonic::Cmovp,
    Mnemonic::Cmovs,
];

/// Instructions that set a byte by the flags.
pub(super) const CONDITIONAL_SETS: [Mnemonic; 16] = [
    Mnemonic::Seta,
    Mnemonic::Setae,
    Mnemonic::Setb,
    Mnemonic::Setbe,
    Mnemonic::Sete,
    Mnemonic::Setg,
    Mnemonic::Setge,
    Mnemonic::Setl,
    Mnemonic::Setle,
    Mnemonic::Setne,
    Mnemonic::Setno,
    Mnemonic::Setnp,
    Mnemonic::Setns,
    Mnemonic::Seto,
    Mnemonic::Setp,
    Mnemonic::Sets,
];

/// What an instruction is about, if that is state that does not travel.
pub(super) fn forbidden(mnemonic: Mnemonic) -> Option<&'static str> {
    Some(match mnemonic {
        Mnemonic::Ldmxcsr | Mnemonic::Stmxcsr => "floating-point control",
        Mnemonic::Fxsave | Mnemonic::Fxsave64 | Mnemonic::Fxrstor | Mnemonic::Fxrstor64 => {
            "floating-point state"
        }
        Mnemonic::Fldcw | Mnemonic::Fnstcw | Mnemonic::Fstcw => "floating-point control",
        Mnemonic::Wrfsbase | Mnemonic::Wrgsbase | Mnemonic::Rdfsbase | Mnemonic::Rdgsbase => {
            "segment bases"
        }
        Mnemonic::Syscall | Mnemonic::Sysenter | Mnemonic::Int => "kernel entry",
        Mnemonic::Std | Mnemonic::Cld => "the direction flag",
        Mnemonic::Pushf
        | Mnemonic::Pushfq
        | Mnemonic::Popf
        | Mnemonic::Popfq
        | Mnemonic::Lahf
        | Mnemonic::Sahf => "the flags as a word",
        Mnemonic::Rdtsc | Mnemonic::Rdtscp | Mnemonic::Cpuid => "the processor's identity",
        _ => return None,
    })
}
