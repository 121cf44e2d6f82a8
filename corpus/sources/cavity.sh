#!/bin/sh
# A driven cavity for OpenFOAM, in this folder.
mkdir -p system constant 0
file() { # PATH CLASS: the rest from standard input
    { echo "FoamFile { version 2.0; format ascii; class $2; object ${1##*/}; }"; cat; } >"$1"
}
file system/controlDict dictionary <<END
application icoFoam; startFrom startTime; startTime 0; stopAt endTime; endTime 0.1; deltaT 0.001; writeControl timeStep; writeInterval 1000;
END
file system/fvSchemes dictionary <<END
ddtSchemes { default Euler; } gradSchemes { default Gauss linear; } divSchemes { default none; div(phi,U) Gauss linear; }
laplacianSchemes { default Gauss linear orthogonal; } interpolationSchemes { default linear; } snGradSchemes { default orthogonal; }
END
file system/fvSolution dictionary <<END
solvers { p { solver PCG; preconditioner DIC; tolerance 1e-6; relTol 0.05; } pFinal { \$p; relTol 0; }
U { solver smoothSolver; smoother symGaussSeidel; tolerance 1e-5; relTol 0; } } PISO { nCorrectors 2; nNonOrthogonalCorrectors 0; pRefCell 0; pRefValue 0; }
END
file system/blockMeshDict dictionary <<END
scale 0.1; vertices ((0 0 0) (1 0 0) (1 1 0) (0 1 0) (0 0 0.1) (1 0 0.1) (1 1 0.1) (0 1 0.1));
blocks (hex (0 1 2 3 4 5 6 7) (40 40 1) simpleGrading (1 1 1)); edges ();
boundary (lid { type wall; faces ((3 7 6 2)); } walls { type wall; faces ((0 4 7 3) (2 6 5 1) (1 5 4 0)); } sides { type empty; faces ((0 3 2 1) (4 5 6 7)); });
END
file constant/transportProperties dictionary <<END
nu 0.01;
END
file 0/p volScalarField <<END
dimensions [0 2 -2 0 0 0 0]; internalField uniform 0;
boundaryField { lid { type zeroGradient; } walls { type zeroGradient; } sides { type empty; } }
END
file 0/U volVectorField <<END
dimensions [0 1 -1 0 0 0 0]; internalField uniform (0 0 0);
boundaryField { lid { type fixedValue; value uniform (1 0 0); } walls { type noSlip; } sides { type empty; } }
END
