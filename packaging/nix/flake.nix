# nix build 'git+file:///path/of/a/checkout?dir=packaging/nix'. Not built yet; docs/packages.md says what was tried.
{
  description = "Places parallel programs on the cores of shared multicore and NUMA machines";

  inputs.nixpkgs.url = "github:NixOS/nixpkgs/nixos-unstable";

  outputs =
    { nixpkgs, ... }:
    let
      systems = [
        "x86_64-linux"
        "aarch64-linux"
      ];
      each = of: nixpkgs.lib.genAttrs systems (system: of nixpkgs.legacyPackages.${system});
    in
    {
      packages = each (pkgs: {
        default = pkgs.callPackage ./package.nix { };
      });

      overlays.default = final: _: { trimtab = final.callPackage ./package.nix { }; };
    };
}
