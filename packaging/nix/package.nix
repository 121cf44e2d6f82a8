# trimtab of this checkout, for Nixpkgs' callPackage.
{
  lib,
  stdenv,
  rustPlatform,
  pkg-config,
  hwloc,
  udev,
}:

rustPlatform.buildRustPackage {
  pname = "trimtab";
  version = (lib.importTOML ../../Cargo.toml).workspace.package.version;

  src = lib.cleanSource ../..;
  cargoLock.lockFile = ../../Cargo.lock;
  cargoBuildFlags = [ "--workspace" ];

  nativeBuildInputs = [ pkg-config ];
  buildInputs = [
    hwloc
    udev
  ];

  # Nixpkgs keeps the archives of the C library in an output of their own.
  env.TRIMTAB_LINK = "dynamic";

  postPatch = ''
    patchShebangs scripts/install
  '';

  # The tests need the processors, users and tools of a real machine, which the sandbox hides.
  doCheck = false;

  installPhase = ''
    runHook preInstall
    BUILT=target/${stdenv.hostPlatform.rust.rustcTarget}/release PREFIX=$out DESTDIR= scripts/install install
    rm $out/lib/trimtab/manifest
    runHook postInstall
  '';

  meta = {
    description = "Places parallel programs on the cores of shared multicore and NUMA machines";
    license = with lib.licenses; [
      mit
      asl20
    ];
    mainProgram = "trimtab";
    platforms = lib.platforms.linux;
  };
}
