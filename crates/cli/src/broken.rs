//! `tenure`, for tests that must catch it: the variable `TENURE_BROKEN` chooses its mistake.

fn main() -> std::process::ExitCode {
    tenure_cli::main()
}
