"""A beam of bricks for CalculiX, fixed at one end and pulled down at the other; on standard output."""

LENGTH, SIDE = 60, 10


def node(x, y, z):
    return 1 + x + (LENGTH + 1) * (y + (SIDE + 1) * z)


print("*NODE, NSET=ALL")
for z in range(SIDE + 1):
    for y in range(SIDE + 1):
        for x in range(LENGTH + 1):
            print(f"{node(x, y, z)}, {x}, {y}, {z}")
print("*ELEMENT, TYPE=C3D8, ELSET=BEAM")
number = 0
for z in range(SIDE):
    for y in range(SIDE):
        for x in range(LENGTH):
            number += 1
            low = [node(x, y, z), node(x + 1, y, z), node(x + 1, y + 1, z), node(x, y + 1, z)]
            high = [corner + (LENGTH + 1) * (SIDE + 1) for corner in low]
            print(", ".join(map(str, [number, *low, *high])))
ends = [[node(x, y, z) for y in range(SIDE + 1) for z in range(SIDE + 1)] for x in (0, LENGTH)]
print("*NSET, NSET=LEFT", *ends[0], sep="\n")
print("*NSET, NSET=RIGHT", *ends[1], sep="\n")
print("*MATERIAL, NAME=STEEL\n*ELASTIC\n210000, 0.3\n*SOLID SECTION, ELSET=BEAM, MATERIAL=STEEL\n*BOUNDARY\nLEFT, 1, 3")
print("*STEP\n*STATIC\n*CLOAD\nRIGHT, 3, -1.0\n*NODE PRINT, NSET=RIGHT\nU\n*END STEP")
