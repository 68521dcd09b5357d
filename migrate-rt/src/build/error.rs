//! Why a program was not built.

use crate::align::AlignError;
use crate::bundle::PackError;
use crate::codegen::CodegenError;
use crate::files::FileError;
use crate::frontend::FrontendError;
use crate::ir::IrError;
use crate::link::LinkError;
use crate::object::ObjectError;
use crate::spine::SpineError;
use crate::toolchain::ToolchainError;
use std::fmt;

macro_rules! build_errors {
    ($($(#[$m:meta])* $name:ident($inner:ty),)*) => {
        /// Why a program was not built, by stage.
        #[derive(Debug)]
        pub enum BuildError {
            $($(#[$m])* $name($inner),)*
        }

        $(impl From<$inner> for BuildError {
            fn from(e: $inner) -> BuildError {
                BuildError::$name(e)
            }
        })*

        impl fmt::Display for BuildError {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $(BuildError::$name(e) => e.fmt(f),)*
                }
            }
        }

        impl std::error::Error for BuildError {}
    };
}

build_errors! {
    /// The tools are not there.
    Toolchain(ToolchainError),
    /// There is no such program, or it does not compile.
    Frontend(FrontendError),
    /// It contains something that exists on one ISA only.
    Ir(IrError),
    /// Its threads cannot be made to migrate.
    Spine(SpineError),
    /// A back end failed.
    Codegen(CodegenError),
    /// A back end's result cannot be read.
    Object(ObjectError),
    /// Not everything can have one address on every ISA.
    Align(AlignError),
    /// A link failed.
    Link(LinkError),
    /// The linked programs are not equal where they must be.
    Pack(PackError),
    /// A file could not be read or written.
    File(FileError),
}
