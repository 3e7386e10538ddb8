//! The `tenure` binary; what it does is the library's.

fn main() -> std::process::ExitCode {
    tenure_cli::main()
}
