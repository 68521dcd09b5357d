//! The program `npb`: its kernels and classes.

/// A kernel of the NAS benchmarks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bench {
    /// Integer sort.
    Is,
    /// Conjugate gradients.
    Cg,
    /// Multigrid.
    Mg,
    /// Fourier transform.
    Ft,
}

impl Bench {
    /// All of them.
    pub const ALL: [Bench; 4] = [Bench::Is, Bench::Cg, Bench::Mg, Bench::Ft];

    /// Name on command lines.
    pub const fn name(self) -> &'static str {
        match self {
            Bench::Is => "is",
            Bench::Cg => "cg",
            Bench::Mg => "mg",
            Bench::Ft => "ft",
        }
    }
}

/// Size of the problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Small.
    S,
    /// Of a workstation.
    W,
    /// Larger.
    A,
}

impl Class {
    /// All of them.
    pub const ALL: [Class; 3] = [Class::S, Class::W, Class::A];

    /// Name on command lines.
    pub const fn name(self) -> &'static str {
        match self {
            Class::S => "S",
            Class::W => "W",
            Class::A => "A",
        }
    }
}

names! {
    "kernel of NPB": Bench;
    "class": Class;
}
