//! System calls: numbers, register convention, argument structures.
//!
//! Register convention, chosen to be the C calling convention so that a call stub is a trap and a
//! return:
//!
//! | | operation | arguments 0 to 4 | status | value | destroyed |
//! |---|---|---|---|---|---|
//! | x86-64 (`syscall`) | `rdi` | `rsi rdx r10 r8 r9` | `rax` | `rdx` | `rcx r11` |
//! | AArch64 (`svc #0`) | `x0` | `x1 x2 x3 x4 x5` | `x0` | `x1` | none |
//!
//! Status 0 is success; otherwise it is an [`Error`](crate::Error) code and the value is 0.

macro_rules! syscalls {
    ($($(#[$m:meta])* $name:ident = $n:literal;)*) => {
        /// A system call.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u64)]
        pub enum Syscall {
            $($(#[$m])* $name = $n,)*
        }

        impl Syscall {
            /// All system calls, in number order.
            pub const ALL: &'static [Syscall] = &[$(Syscall::$name),*];

            /// The call with this number.
            pub const fn from_number(n: u64) -> Option<Syscall> {
                match n {
                    $($n => Some(Syscall::$name),)*
                    _ => None,
                }
            }

            /// Name for traces and reports.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Syscall::$name => stringify!($name),)*
                }
            }
        }
    };
}

syscalls! {
    /// Nothing; succeeds with value 0. For measuring the entry and exit path.
    Null = 0;
    /// `(code)`: ends the program. Code 0 is success. Does not return.
    Exit = 1;
    /// `(ptr, len)`: writes UTF-8 text to the console of the node the thread runs on; lines are
    /// kept whole. Value: bytes taken (at most [`MAX_WRITE`](crate::user::MAX_WRITE)).
    Write = 2;
    /// Value: nanoseconds of fused time since the first node started.
    Now = 3;
    /// Lets other threads of this CPU run.
    Yield = 4;
    /// `(deadline_ns)`: sleeps until fused time reaches the deadline.
    SleepUntil = 5;
    /// `(node)`: continues this thread on another node. If that node has the same ISA the call
    /// returns there. If not, the thread continues in the context it left when it last left that
    /// ISA (returning from its own `Migrate` there), or at its entry point the first time; this
    /// call returns when the thread comes back to this ISA. Value: the node it came back on.
    Migrate = 6;
    /// `(len)`: new zero-filled memory, a multiple of the page size, readable and writable at the
    /// same address on every ISA. Pages get frames when first touched, from the pool of the node
    /// that touches them. Value: its address.
    MapAnon = 7;
    /// `(addr, len)`: gives back memory obtained with `MapAnon`; the range must be one that was
    /// mapped.
    Unmap = 8;
    /// `(ptr, len)`: copies a [`SysInfo`](crate::user::SysInfo) out. Value: its full size.
    SysInfo = 9;
    /// `(ptr, len)`: copies the program's argument text out. Value: its full length.
    Args = 10;
    /// `(ptr)`: a [`ReportArgs`](crate::user::ReportArgs): records a check or a counter of this run.
    Report = 11;
    /// `(addr, isa)`: how `addr` is mapped in the page table of `isa`. Value: physical address of
    /// the byte, with [`TRANSLATE_WRITE`](crate::user::TRANSLATE_WRITE) and
    /// [`TRANSLATE_EXEC`](crate::user::TRANSLATE_EXEC) in the top bits.
    Translate = 12;
    /// Value: where the thread runs, as packed by [`Where`](crate::user::Where).
    Where = 13;
}

#[cfg(test)]
mod tests {
    use super::Syscall;

    #[test]
    fn numbers_are_dense_and_round_trip() {
        for (i, &s) in Syscall::ALL.iter().enumerate() {
            assert_eq!(s as u64, i as u64);
            assert_eq!(Syscall::from_number(i as u64), Some(s));
        }
        assert_eq!(Syscall::from_number(Syscall::ALL.len() as u64), None);
    }
}
