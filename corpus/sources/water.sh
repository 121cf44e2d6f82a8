#!/bin/sh
# GROMACS' input: a box of 884 waters from the one that the package brings, and 100 steps.   water.sh FOLDER
set -e
cd "$1"
export GMX_MAXBACKUP=-1
printf '%s\n' '#include "oplsaa.ff/forcefield.itp"' '#include "oplsaa.ff/spce.itp"' '[ system ]' water '[ molecules ]' >topol.top
printf '%s\n' 'integrator = md' 'nsteps = 100' 'cutoff-scheme = Verlet' 'coulombtype = PME' 'rcoulomb = 0.9' 'rvdw = 0.9' >md.mdp
gmx -quiet solvate -cs spc216 -box 3 3 3 -o water.gro -p topol.top
gmx -quiet grompp -f md.mdp -c water.gro -p topol.top -o water.tpr
